// Package server makes a whole server from the settings: it opens the state directory and the
// database, makes the services in order, listens, and ends everything in reverse.
//
// server.go has the order of start and end; settings.go translates the settings for each part;
// installation.go refuses a database that does not belong to the directories. The package also
// opens the state for commands that work beside the server, such as doctor.
package server
