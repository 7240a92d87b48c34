// Package sandbox runs real Kubernetes clusters on one Linux machine, without Docker or virtual
// machines: each is a network namespace with etcd, API server, controller-manager, scheduler,
// containerd, kubelet and kube-proxy, pods included. Nodes are connected by a bridge, and the
// network between pods of different clusters is flat.
//
// Everything of a sandbox is found by a path: processes have the folder of their cluster in their
// environment, containers have their root below it, and so have mounts, also those of the pods'
// network namespaces. So a sandbox is removed in the same way whether it runs, failed half-way, was
// killed or existed before a restart of the machine: kill the processes, unmount what is below the
// folder, remove links and folders. The records of process ids are only used to see what runs.
//
// The package is for Linux; elsewhere it is empty.
package sandbox
