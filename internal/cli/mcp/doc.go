// Package mcp has the command that serves an AI application on this machine.
package mcp
