// Package snapshots has the routes of /v1 about snapshots.
package snapshots
