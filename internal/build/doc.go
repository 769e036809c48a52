// Package build makes images from Dockerfiles.
//
// A Dockerfile is read with BuildKit's parser, and what is not supported is refused
// by line before anything runs. Its stages are then worked off one after the other,
// those only that the target needs. Each RUN gets a work box of its own (package
// lifecycle), which is a sandbox like any other; what it leaves behind is a layer.
// COPY, ADD and a WORKDIR that is missing need no box: their layers are put together
// from names in memory and contents in a file (package image), so nothing of a
// context is ever unpacked on the host. Other instructions change only how the
// image is run.
//
// A layer is found again by a key of the workspace, the digest below it, the
// instruction with everything that it depends on, and the contents of what it
// copies. So an unchanged Dockerfile over unchanged files makes nothing anew, and
// no workspace learns what another has built.
//
// A build lives as long as its request: when the client goes away it ends, and a
// server that is killed leaves work boxes and temporary files that the next one
// removes. Layers that were finished stay, to be used again.
package build
