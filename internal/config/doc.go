// Package config holds every setting of the server.
//
// A setting has one name, its path in the YAML file, e.g. sandbox.max_memory.
// Its value is, from weakest to strongest: the default, the file, the
// environment variable (MODBOX_SANDBOX_MAX_MEMORY), the flag
// (--sandbox-max-memory). Unknown keys in the file are errors.
//
// The example file and the table in docs/configuration.md are written from the
// struct by [Example] and [Table]; a test compares them.
package config
