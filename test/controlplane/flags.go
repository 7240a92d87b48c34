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
		"--name=" + etcdName, // not the control plane's: that may hold characters --initial-cluster splits at
		"--data-dir=" + f.etcdData,
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
		"--initial-cluster=" + etcdName + "=" + peer,
		// Mutual TLS with a CA of its own: on a shared machine nobody else reads the Secrets in here, and an API server
		// that finds another control plane's etcd on its port is turned away instead of mixing states.
		"--cert-file=" + f.etcdServer.cert, "--key-file=" + f.etcdServer.key,
		"--client-cert-auth=true", "--trusted-ca-file=" + f.etcdCA.cert,
		"--peer-cert-file=" + f.etcdServer.cert, "--peer-key-file=" + f.etcdServer.key,
		"--peer-client-cert-auth=true", "--peer-trusted-ca-file=" + f.etcdCA.cert,
		// A crash of the machine may lose data; nothing here is meant to survive that, and it is many times faster.
		"--unsafe-no-fsync=true",
		// A member without peers can only win the election, and waits a whole timeout before it holds one.
		"--heartbeat-interval=20", "--election-timeout=200",
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
		// Nobody reaches the API server by the `kubernetes` Service here, and loopback is no legal endpoint.
		"--endpoint-reconciler-type=none",
		"--allow-privileged=true",
		"--profiling=false",
		// Priority and fairness stays on: it is what members meet on a real broker. Admin (system:masters) is exempt.
	}
	if !o.ControllerManager {
		// Nothing creates default service accounts, without which this plugin would refuse every Pod.
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
		"--leader-elect=false", // there is only this one, and an election delays every start
		"--secure-port=0",      // nobody scrapes it, and a port less cannot be taken
		"--kube-api-qps=500", "--kube-api-burst=1000",
		"--profiling=false",
	}
}
