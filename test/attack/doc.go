// Package attack lets one workspace do everything it can against the server at the same
// time (fill the disk, write Dockerfiles that are expensive to expand, pull layers of empty
// files, open connections that send no body, pin the memory of calls) and checks that
// another workspace's creates, commands, destroys and sign-ins go on. It prints how long
// those took, before and during the attack.
package attack
