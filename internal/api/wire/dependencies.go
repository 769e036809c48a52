package wire

// ValidateDependencies is the body of POST /v1/dependencies/validate.
type ValidateDependencies struct {
	Image        string   `json:"image,omitempty" maxLength:"512" doc:"The image they are for; modbox/base when omitted."`
	Dependencies []string `json:"dependencies" nullable:"false" doc:"Debian packages, as in a create." example:"[\"curl=8.14*\"]"`
}

// ValidatedDependencies says which can be installed.
type ValidatedDependencies struct {
	Valid   []string            `json:"valid" nullable:"false" doc:"Those that can."`
	Invalid []InvalidDependency `json:"invalid" nullable:"false" doc:"Those that cannot."`
}

// InvalidDependency is a Debian package that cannot be installed.
type InvalidDependency struct {
	Name     string   `json:"name" doc:"The package as it was asked for."`
	Reason   string   `json:"reason" doc:"Why not."`
	Versions []string `json:"versions,omitempty" nullable:"false" doc:"The versions there are, when only the version is wrong."`
}
