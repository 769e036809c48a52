// Package archtest holds the repository's structure as tests: which package may
// import which, that every package says what it is for, and that files and
// functions stay readable.
package archtest
