# Modbox. "make help" lists the targets; CI runs exactly "make test".
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help build quickstart test test-cluster storm soak lint gen site bench stop clean install deps release

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

deps: ## install the missing Debian packages (apt-get)
	@scripts/install-deps.sh

build: ## build bin/modbox, with the agent and the sandbox process inside
	@scripts/build.sh

quickstart: deps build ## from nothing to a running server, and code run in a sandbox
	@scripts/quickstart.sh

stop: ## stop the server; sandboxes keep running
	@scripts/stop.sh

clean: ## destroy the sandboxes, stop the server, remove all that was built
	@scripts/clean.sh

test: ## install what the tests need, check style and generated files, run all tests
	@scripts/install-deps.sh --test
	@scripts/build.sh
	@scripts/test.sh

test-cluster: ## run the tests on a Kubernetes cluster, which it builds (as root)
	@scripts/install-deps.sh --test
	@scripts/install-deps.sh --cluster
	@scripts/build.sh
	@scripts/test.sh cluster

MINUTES ?= 10
storm: build ## kill the server again and again under load, for MINUTES=10
	@source scripts/env.sh && MODBOX_TEST_GVISOR=1 MODBOX_BIN=$$PWD/bin/modbox MODBOX_TEST_IMAGE_DIR=$$MODBOX_STATE_DIR/images \
		MODBOX_TEST_STORM_MINUTES=$(MINUTES) go test -v -count=1 -timeout 0 ./test/storm

soak: build ## a mixed load for MINUTES=10, after which nothing may have grown
	@source scripts/env.sh && MODBOX_TEST_GVISOR=1 MODBOX_BIN=$$PWD/bin/modbox MODBOX_TEST_IMAGE_DIR=$$MODBOX_STATE_DIR/images \
		MODBOX_TEST_SOAK_MINUTES=$(MINUTES) go test -v -count=1 -timeout 0 ./test/soak

lint: ## check style, and that generated files are what their sources say
	@scripts/lint.sh

gen: ## write the generated files
	go generate ./...
	scripts/deps.sh
	scripts/notice.sh
	/usr/bin/python3 sdk/python/tools/schemas.py
	/usr/bin/python3 sdk/python/tools/unasync.py
	go test ./internal/config ./internal/cli -update >/dev/null
	go run ./internal/site -llms docs/ >llms.txt
	scripts/npm-ci.sh sdk/typescript/tools && npm run --silent generate --prefix sdk/typescript

site: ## build the documentation's web site in build/site
	@go run ./internal/site -o build/site

release: ## make the files of a release in dist/, from the tag of HEAD
	@scripts/release.sh

bench: build ## measure against Docker, when it is there
	@scripts/bench.sh

install: build ## install modbox and its systemd unit (as root)
	install -D -m 0755 bin/modbox $(DESTDIR)/usr/local/bin/modbox
	install -D -m 0644 packaging/modbox.service $(DESTDIR)/etc/systemd/system/modbox.service
	test -e $(DESTDIR)/etc/modbox.yaml || install -D -m 0644 packaging/modbox.example.yaml $(DESTDIR)/etc/modbox.yaml
