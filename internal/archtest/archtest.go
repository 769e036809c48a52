// Package archtest holds the repository's structure as tests: which package may
// import which, that every package says what it is for, that every interface method has a
// comment, and that files, functions, packages, receivers and interfaces stay small. What
// is over a bound today is in a list of exceptions that can only shrink.
package archtest
