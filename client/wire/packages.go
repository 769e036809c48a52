package wire

// ValidateAptPackages is the body of POST /v1/apt-packages/validate.
type ValidateAptPackages struct {
	Image       string   `json:"image,omitempty" maxLength:"512" doc:"The image they are for; modbox/base when omitted."`
	AptPackages []string `json:"apt_packages" nullable:"false" doc:"Debian packages, as in a create." example:"[\"curl=8.14*\"]"`
}

// ValidatedAptPackages says which can be installed.
type ValidatedAptPackages struct {
	Valid   []string            `json:"valid" nullable:"false" doc:"Those that can."`
	Invalid []InvalidAptPackage `json:"invalid" nullable:"false" doc:"Those that cannot."`
}

// InvalidAptPackage is a Debian package that cannot be installed.
type InvalidAptPackage struct {
	Name     string   `json:"name" doc:"The package as it was asked for."`
	Reason   string   `json:"reason" doc:"Why not."`
	Versions []string `json:"versions,omitempty" nullable:"false" doc:"The versions there are, when only the version is wrong."`
}
