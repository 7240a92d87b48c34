//go:build linux

package sandbox

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// writeNodeFiles writes the configurations of containerd, the CNI and kubelet, and creates their
// folders.
func (p plan) writeNodeFiles(c cluster, bin binaries, pauseImage string) error {
	for _, dir := range []string{
		c.path("logs"), c.path("run"), c.path("cni"), c.path("etcd"), c.path("kubelet"), c.path("pods"), c.path("manifests"), c.path("plugins"),
		c.runDir,
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	network, err := c.cniConfig(p)
	if err != nil {
		return err
	}
	kubeletConfig, err := c.kubeletConfig()
	if err != nil {
		return err
	}
	for path, text := range map[string]string{
		c.path("containerd.toml"):            c.containerdConfig(bin, pauseImage),
		c.path("cni", "10-sandbox.conflist"): network,
		c.path("kubelet.yaml"):               kubeletConfig,
		// Names outside the clusters are resolved by the host. Most hosts have no DNS server on this
		// address and refuse at once.
		c.path("resolv.conf"): fmt.Sprintf("nameserver %s\n", p.hostIPs()[0].Addr()),
	} {
		if err := writeFile(path, []byte(text)); err != nil {
			return err
		}
	}
	return os.Chmod(c.path("resolv.conf"), 0o644) // pods that are not root read a copy of it
}

// containerdConfig returns a configuration that keeps everything of this containerd below the
// cluster's folders, also the network namespaces of pods, so that Down finds it by its path.
func (c cluster) containerdConfig(bin binaries, pauseImage string) string {
	return fmt.Sprintf(`version = 3
root = %[1]q
state = %[2]q
imports = []
# Plugins that would look for programs, disks or sockets of the machine.
disabled_plugins = [
  "io.containerd.nri.v1.nri", "io.containerd.internal.v1.tracing", "io.containerd.image-verifier.v1.bindir",
  "io.containerd.snapshotter.v1.blockfile", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.zfs", "io.containerd.differ.v1.erofs",
]

[grpc]
  address = %[3]q
[ttrpc]
  address = %[4]q

[plugins."io.containerd.internal.v1.opt"]
  path = %[5]q
[plugins."io.containerd.shim.v1.manager"]
  socket_dir = %[6]q

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = %[7]q

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  enable_unprivileged_ports = true
  disable_apparmor = true
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = [%[8]q]
  conf_dir = %[9]q
  use_internal_loopback = true
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = %[10]q
`, c.path("containerd"), filepath.Join(c.runDir, "containerd"), c.containerdSocket(), c.containerdSocket()+".ttrpc",
		c.path("containerd-opt"), filepath.Join(c.runDir, "s"), pauseImage, bin.node, c.path("cni"), filepath.Join(c.runDir, "runc"))
}

// networkName returns a name that is unique on the machine: the CNI library names its files after
// it.
func (c cluster) networkName() string { return c.netns }

func (c cluster) cniConfig(p plan) (string, error) {
	var ranges, routes []any
	for i, pods := range c.podCIDRs {
		defaultRoute := "0.0.0.0/0"
		if p.versions()[i] == 6 {
			defaultRoute = "::/0"
		}
		ranges = append(ranges, []any{map[string]string{"subnet": pods.String()}})
		routes = append(routes, map[string]string{"dst": defaultRoute})
	}
	config := map[string]any{
		"cniVersion": "1.0.0", "name": c.networkName(),
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
				"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": c.path("ipam")},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}, "backend": "nftables"},
		},
	}
	text, err := json.MarshalIndent(config, "", "  ")
	return string(text), err
}

func (c cluster) kubeletConfig() (string, error) {
	neverEvict := map[string]string{"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.inodesFree": "0%"}
	dns := make([]string, len(c.serviceCIDRs))
	for i := range c.serviceCIDRs {
		dns[i] = c.dnsIP(i).String()
	}
	config := map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": unspecifiedAddress(c.nodeIP()),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": true},
			"x509": map[string]any{"clientCAFile": c.cert("ca")},
		},
		"authorization": map[string]any{"mode": "Webhook"},
		"tlsCertFile":   c.cert("kubelet-server"), "tlsPrivateKeyFile": c.key("kubelet-server"),
		// A changed ConfigMap, such as that of cluster DNS when Seamark is installed, reaches pods at the
		// next sync: after a minute by default.
		"syncFrequency": "5s",
		// After a fault of the control plane the agent starts again soon: after up to five minutes by
		// default.
		"crashLoopBackOff": map[string]string{"maxContainerRestartPeriod": "5s"},
		"clusterDomain":    "cluster.local", "clusterDNS": dns[:1], "resolvConf": c.path("resolv.conf"),
		"containerRuntimeEndpoint": "unix://" + c.containerdSocket(),
		"podLogsDir":               c.path("pods"), "staticPodPath": c.path("manifests"), "volumePluginDir": c.path("plugins"),
		// Several kubelets share the machine's control groups, so none may rearrange them.
		"cgroupDriver": "cgroupfs", "failCgroupV1": false, "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{},
		"localStorageCapacityIsolation": false, "failSwapOn": false, "oomScoreAdj": 0, "makeIPTablesUtilChains": false,
		// Images are loaded, not pulled: one that kubelet removed to free disk space could not be pulled
		// again.
		"evictionHard": neverEvict, "imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99,
		"maxPods": 250, "registryPullQPS": 0, "eventRecordQPS": 0, "kubeAPIQPS": 50, "kubeAPIBurst": 100,
		"serializeImagePulls": false, "rotateCertificates": false, "shutdownGracePeriod": "0s",
	}
	text, err := yaml.Marshal(config)
	return string(text), err
}

// unspecifiedAddress returns the address to listen on all addresses of the family of ip.
func unspecifiedAddress(ip netip.Addr) string {
	if ip.Is6() {
		return "::"
	}
	return "0.0.0.0"
}
