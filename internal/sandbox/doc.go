// Package sandbox runs real Kubernetes clusters on one Linux machine, without Docker or virtual machines: each is a network namespace with
// etcd, API server, controller-manager, scheduler, containerd, kubelet and kube-proxy, pods included. Nodes are connected by a bridge, and
// the network between pods of different clusters is flat.
//
// Everything of a sandbox is found by its path or its mark: programs carry the folder of their cluster in their environment, containers have
// their roots below it, mounts (those of the pods' network namespaces among them) lie below it. So the end of a sandbox is the same
// whether it ran well, failed half-way, was killed or did not survive a restart of the machine: end what is marked, unmount what is
// below, remove links and folders. Records of process ids only tell what runs.
//
// All of it is for Linux; elsewhere the package is empty.
package sandbox
