// Package processconnect has the handler of the service of package process.
package processconnect
