// Package objects is the vocabulary that all parts share: the names and labels of objects, their
// owners, the membership of a cluster, and properties of data planes and leases. It imports
// packages of api and of Kubernetes only, no other package of this module.
package objects
