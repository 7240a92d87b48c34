package controlplane

import "fmt"

const (
	etcdName      = "etcd"
	apiserverName = "kube-apiserver"
	managerName   = "kube-controller-manager"
)

func etcdArgs(f files, p ports) []string {
	client, peer := loopbackURL(p.etcd), loopbackURL(p.peer)
	return []string{
		"--name=" + etcdName, // the control plane's name may hold characters at which --initial-cluster is split
		"--data-dir=" + f.etcdData,
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + etcdName + "=" + peer,
		// Mutual TLS with a CA per control plane: other users of the machine cannot read the Secrets, and
		// an API server that finds another control plane's etcd on its port is refused instead of using
		// that state.
		"--cert-file=" + f.etcdServer.cert, "--key-file=" + f.etcdServer.key,
		"--client-cert-auth=true", "--trusted-ca-file=" + f.etcdCA.cert,
		"--peer-cert-file=" + f.etcdServer.cert, "--peer-key-file=" + f.etcdServer.key,
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file=" + f.etcdCA.cert,
		// Many times faster. A crash of the machine may lose data, which tests can afford.
		"--unsafe-no-fsync=true",
		// A single member wins its election after up to one timeout, which must be five heartbeats or
		// more. Shorter heartbeats cost more CPU time while etcd is idle: 0.36 s a minute with 20 ms,
		// 0.14 s with 100 ms.
		"--heartbeat-interval=100", "--election-timeout=500",
		"--logger=zap", "--log-level=warn",
	}
}

func apiserverArgs(o Options, f files, p ports) []string {
	args := []string{
		"--etcd-servers=" + loopbackURL(p.etcd),
		"--etcd-cafile=" + f.etcdCA.cert, "--etcd-certfile=" + f.etcdClient.cert, "--etcd-keyfile=" + f.etcdClient.key,
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", p.apiserver),
		"--tls-cert-file=" + f.apiserver.cert, "--tls-private-key-file=" + f.apiserver.key,
		"--client-ca-file=" + f.ca.cert,
		"--authorization-mode=Node,RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + f.serviceAccount, "--service-account-signing-key-file=" + f.serviceAccount,
		"--service-cluster-ip-range=" + o.ServiceCIDR,
		// There are no pods to use the `kubernetes` Service, and loopback is not a valid endpoint.
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",
		"--profiling=false",
		// Priority and fairness stays on, as on a real broker. The admin (system:masters) is exempt.
	}
	if !o.ControllerManager {
		// Without a controller-manager there are no default service accounts, and this plugin would
		// refuse every Pod.
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	return append(args, o.APIServerArgs...)
}

func managerArgs(o Options, f files) []string {
	return []string{
		"--kubeconfig=" + f.managerKubeconfig,
		"--cluster-name=" + o.Name,
		"--root-ca-file=" + f.ca.cert,
		"--cluster-signing-cert-file=" + f.ca.cert, "--cluster-signing-key-file=" + f.ca.key,
		"--service-account-private-key-file=" + f.serviceAccount,
		"--use-service-account-credentials=true",
		"--service-cluster-ip-range=" + o.ServiceCIDR,
		"--leader-elect=false", // a single replica needs no election, which would delay the start
		"--secure-port=0",      // it is not scraped, and a port could be taken
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--profiling=false",
	}
}
