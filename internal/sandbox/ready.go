//go:build linux

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// config returns an admin's client configuration.
func (c cluster) config() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig("admin"))
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", c.name, err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	return config, nil
}

func (c cluster) client() (*kubernetes.Clientset, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// Config returns an admin's client configuration for a cluster.
func (s *Sandbox) Config(name string) (*rest.Config, error) {
	c, err := s.plan.find(name)
	if err != nil {
		return nil, err
	}
	return c.config()
}

func (c cluster) awaitAPIServer(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	return c.await(ctx, apiserver, "the API server", func(ctx context.Context) error {
		if _, alive := c.running(etcd); !alive {
			return fmt.Errorf("etcd ended; the last lines of its log:\n%s", logTail(c.log(etcd)))
		}
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// awaitContainerd waits until containerd answers requests of kubelet, which ends otherwise: while
// containerd looks for the containers of an earlier process, it answers only other clients.
func (c cluster) awaitContainerd(ctx context.Context) error {
	conn, err := grpc.NewClient("unix://"+c.containerdSocket(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing depends on it
	return c.await(ctx, containerd, "containerd", func(ctx context.Context) error {
		const version = "/runtime.v1.RuntimeService/Version" // its request may be empty, its reply does not matter
		return conn.Invoke(ctx, version, &emptypb.Empty{}, &emptypb.Empty{})
	})
}

// awaitNode waits until pods can be created and scheduled: the controller-manager has created the
// default service account, and the node is ready and has no taint.
func (c cluster) awaitNode(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = c.await(ctx, controllerManager, "the default service account", func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	if err != nil {
		return err
	}
	return c.await(ctx, kubelet, "the node to be ready", func(ctx context.Context) error {
		if _, alive := c.running(containerd); !alive {
			return fmt.Errorf("containerd ended; the last lines of its log:\n%s", logTail(c.log(containerd)))
		}
		node, err := client.CoreV1().Nodes().Get(ctx, c.node(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := c.nodeFresh(node); err != nil {
			return err
		}
		return nodeReady(node)
	})
}

// nodeFresh returns an error until the kubelet that runs now has reported: the node's status may be
// that of an earlier one.
func (c cluster) nodeFresh(node *corev1.Node) error {
	record, err := os.Stat(c.record(kubelet))
	if err != nil {
		return err
	}
	started := record.ModTime().Truncate(time.Second) // the precision of heartbeats
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && !condition.LastHeartbeatTime.Time.Before(started) {
			return nil
		}
	}
	return errors.New("kubelet has not reported since it started")
}

// nodeReady returns an error that names what keeps a node from running pods.
func nodeReady(node *corev1.Node) error {
	for _, condition := range node.Status.Conditions {
		if condition.Type != corev1.NodeReady {
			continue
		}
		if condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("node is not ready: %s", condition.Message)
		}
		for _, taint := range node.Spec.Taints {
			if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
				return fmt.Errorf("node has taint %s", taint.Key)
			}
		}
		return nil
	}
	return errors.New("node has no condition Ready")
}
