// Package monitoring has the tests of what operators watch a server with: its metrics, the alert
// rules and the dashboards in packaging/, and their documentation, against a real server that a real
// Prometheus scrapes.
package monitoring
