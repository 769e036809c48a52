// Package remote speaks the protocol of registries: it signs in, resolves references, downloads
// blobs and pushes images. It knows neither the index of the images that are stored nor which
// workspace may use them.
//
// A [Client] opens a [Repository], signed in. [Repository.Resolve] asks for a reference and
// returns a [Target], whose manifest is checked before any layer is fetched. [Downloads] is a
// directory of blobs between the begin of their download and the end of the pull; an interrupted
// download is continued by the next pull.
//
// Users choose the registries, and registries choose where they send the server for tokens and
// blobs. The client connects neither to services of its own machine nor to the metadata of a
// cloud, and to private networks only if the operator permits it. A name does not tell the address
// behind it, so the client checks the address of each connection: see reach.go.
package remote
