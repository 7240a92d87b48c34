package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const readyPoll = 50 * time.Millisecond

// await polls until a process is ready. It fails, with the end of the log, when the process ends or
// ctx does.
func (c *ControlPlane) await(ctx context.Context, p *child, ready func(context.Context) error) error {
	poll := time.NewTicker(readyPoll)
	defer poll.Stop()
	var last error
	for {
		err := probe(ctx, p, ready)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-p.exited:
			return fmt.Errorf("control plane %q: %w", c.options.Name, p.failure())
		case <-ctx.Done():
			return fmt.Errorf("control plane %q: wait for %s: %w (last error: %w); the last lines of %s:\n%s",
				c.options.Name, p.name, context.Cause(ctx), orNone(last), p.log, logTail(p.log, p.logFrom))
		case <-poll.C:
		}
	}
}

// probe calls ready once, for at most ten seconds and only while the process runs.
func probe(ctx context.Context, p *child, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	go func() {
		select {
		case <-p.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ready(ctx)
}

func orNone(err error) error {
	if err == nil {
		return errors.New("none")
	}
	return err
}

// etcdReady does a TLS handshake with etcd's client port, which etcd opens once it has elected
// itself. The certificates ensure that it is this control plane's etcd.
func (c *ControlPlane) etcdReady(ctx context.Context) error {
	pair, err := tls.X509KeyPair(c.pki.etcdClient.cert, c.pki.etcdClient.key)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.pki.etcdCA)
	dialer := tls.Dialer{NetDialer: &net.Dialer{}, Config: &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS13,
	}}
	conn, err := dialer.DialContext(ctx, "tcp", loopback(c.ports.etcd))
	if err != nil {
		return err
	}
	return conn.Close()
}

func (c *ControlPlane) apiserverReady(ctx context.Context) error {
	client, err := c.directClient()
	if err != nil {
		return err
	}
	return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// managerReady checks that the controller-manager has created the default service account.
func (c *ControlPlane) managerReady(ctx context.Context) error {
	client, err := c.directClient()
	if err != nil {
		return err
	}
	_, err = client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}

func (c *ControlPlane) directClient() (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(rest.CopyConfig(c.DirectConfig()))
}
