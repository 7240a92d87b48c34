//go:build linux

package sandbox

import (
	"fmt"
	"path/filepath"
	"strings"
)

const apiserverPort = 6443

// Names of the components and of their log files.
const (
	etcd              = "etcd"
	apiserver         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	containerd        = "containerd"
	kubelet           = "kubelet"
	kubeProxy         = "kube-proxy"
)

// componentNames are all components of a cluster.
var componentNames = []string{etcd, apiserver, controllerManager, scheduler, containerd, kubelet, kubeProxy}

// binaries are the programs of a cluster.
type binaries struct {
	kube string // path of the binary with all components of Kubernetes
	node string // folder of containerd and the CNI plugins
}

// component returns how a component of the cluster is run.
func (c cluster) component(name string, bin binaries, p plan) component {
	kube := func(args []string) component {
		return component{name: name, dir: c.dir, args: append([]string{bin.kube, name}, args...)}
	}
	switch name {
	case etcd:
		return kube(c.etcdArgs())
	case apiserver:
		return kube(c.apiserverArgs())
	case controllerManager:
		return kube(c.managerArgs())
	case scheduler:
		return kube(c.schedulerArgs())
	case containerd:
		return component{
			name: name, dir: c.dir, path: bin.node + ":",
			args: []string{filepath.Join(bin.node, "containerd"), "--config", c.path("containerd.toml"), "--log-level", "warn"},
		}
	case kubelet:
		return kube(c.kubeletArgs())
	case kubeProxy:
		return kube(c.proxyArgs(p))
	}
	panic("there is no component " + name)
}

func (c cluster) etcdArgs() []string {
	const client, peer = "https://127.0.0.1:2379", "https://127.0.0.1:2380" // loopback of the node's own network namespace
	return []string{
		"--name=etcd", "--data-dir=" + c.path("etcd"),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		// Pods with the host network reach loopback too. Without a certificate they must not read
		// the cluster's Secrets.
		"--cert-file=" + c.cert("etcd"), "--key-file=" + c.key("etcd"), "--client-cert-auth=true", "--trusted-ca-file=" + c.cert("etcd-ca"),
		"--peer-cert-file=" + c.cert("etcd"), "--peer-key-file=" + c.key("etcd"),
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file=" + c.cert("etcd-ca"),
		"--unsafe-no-fsync=true", // nothing in a sandbox has to survive a crash of the machine
		"--heartbeat-interval=50", "--election-timeout=500",
		"--logger=zap", "--log-level=warn",
	}
}

func (c cluster) apiserverArgs() []string {
	return []string{
		"--etcd-servers=https://127.0.0.1:2379",
		"--etcd-cafile=" + c.cert("etcd-ca"), "--etcd-certfile=" + c.cert("etcd-client"), "--etcd-keyfile=" + c.key("etcd-client"),
		"--bind-address=" + unspecifiedAddress(c.nodeIP()), "--advertise-address=" + c.nodeIP().String(),
		fmt.Sprintf("--secure-port=%d", apiserverPort),
		"--tls-cert-file=" + c.cert("kube-apiserver"), "--tls-private-key-file=" + c.key("kube-apiserver"),
		"--client-ca-file=" + c.cert("ca"),
		"--kubelet-certificate-authority=" + c.cert("ca"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + c.cert("kube-apiserver-kubelet-client"),
		"--kubelet-client-key=" + c.key("kube-apiserver-kubelet-client"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + c.key("service-account"), "--service-account-signing-key-file=" + c.key("service-account"),
		"--service-cluster-ip-range=" + join(c.serviceCIDRs),
		"--allow-privileged=true", "--profiling=false",
	}
}

func (c cluster) managerArgs() []string {
	args := []string{
		"--kubeconfig=" + c.kubeconfig(controllerManager), "--cluster-name=" + c.name,
		"--root-ca-file=" + c.cert("ca"),
		"--cluster-signing-cert-file=" + c.cert("ca"), "--cluster-signing-key-file=" + c.key("ca"),
		"--service-account-private-key-file=" + c.key("service-account"), "--use-service-account-credentials=true",
		"--service-cluster-ip-range=" + join(c.serviceCIDRs), "--cluster-cidr=" + join(c.podCIDRs),
		"--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false",
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
	// The only node has all of the cluster's pods: it publishes their range, as nodes of real
	// clusters do.
	args = append(args, "--allocate-node-cidrs=true")
	for _, pods := range c.podCIDRs {
		flag := "--node-cidr-mask-size"
		if len(c.podCIDRs) > 1 {
			flag += map[bool]string{true: "-ipv4", false: "-ipv6"}[pods.Addr().Is4()]
		}
		args = append(args, fmt.Sprintf("%s=%d", flag, pods.Bits()))
	}
	return args
}

func (c cluster) schedulerArgs() []string {
	return []string{"--kubeconfig=" + c.kubeconfig(scheduler), "--leader-elect=false", "--bind-address=127.0.0.1", "--profiling=false"}
}

func (c cluster) kubeletArgs() []string {
	labels := []string{"topology.kubernetes.io/region=" + c.region, "topology.kubernetes.io/zone=" + c.zone}
	return []string{
		"--config=" + c.path("kubelet.yaml"), "--kubeconfig=" + c.kubeconfig(kubelet), "--root-dir=" + c.path("kubelet"),
		"--cert-dir=" + c.path("kubelet", "pki"), "--hostname-override=" + c.node(), "--node-ip=" + join(addrs(c.nodeIPs)),
		"--node-labels=" + strings.Join(labels, ","),
	}
}

// proxyArgs include the pods of all clusters in kube-proxy's cluster CIDR. The network between
// clusters is flat, so a client that calls a service of another cluster needs no masquerading.
func (c cluster) proxyArgs(p plan) []string {
	return []string{
		"--kubeconfig=" + c.kubeconfig(kubeProxy), "--proxy-mode=nftables", "--hostname-override=" + c.node(),
		"--cluster-cidr=" + join(p.allPods()), "--bind-address=" + c.nodeIP().String(),
		// The limits of the connection tracking table are the machine's, not the cluster's. Do not
		// change them.
		"--conntrack-max-per-core=0", "--conntrack-min=0", "--conntrack-tcp-timeout-established=0s", "--conntrack-tcp-timeout-close-wait=0s",
		"--oom-score-adj=0", // lower ones need a privilege that containers may lack
		"--profiling=false",
	}
}
