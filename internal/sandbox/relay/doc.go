// Package relay delays packets. It is for kernels without netem: rules of nftables hand packets
// over to a TAP device, and a process reads them there, keeps them for a while and writes them
// back, as if they arrived on that device.
//
// The process is the program that links this package, run again with another name: the CLI, a test
// or the demo. So it needs no binary of its own and no checkout.
//
// The package is for Linux; elsewhere it is empty.
package relay
