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

// await polls until a process is ready, and explains itself with its log when it ends or the time is up.
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
			return fmt.Errorf("control plane %q: waiting for %s: %w (last answer: %w); the last lines of %s:\n%s",
				c.options.Name, p.name, context.Cause(ctx), orNone(last), p.log, logTail(p.log, p.logFrom))
		case <-poll.C:
		}
	}
}

// ask puts one question, which ends with the process it is about and after a while: an answer may never come.
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

// etcdAnswers is a TLS handshake with etcd's client port, which it opens when it has a leader, itself. The certificates make
// sure that it is our etcd that answers.
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

// managerWorks asks for the first thing a controller-manager makes that users depend on.
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
