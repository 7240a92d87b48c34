package netbed

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Get reads a page from inside the namespace. Any status but 200 is an error, and any certificate
// is accepted. Headers are pairs of a name and a value.
func (n *Namespace) Get(url string, headers ...string) (string, error) {
	dial := func(_ context.Context, network, address string) (c net.Conn, err error) {
		err = n.Do(func() error {
			c, err = net.DialTimeout(network, address, timeout)
			return err
		})
		return c, err
	}
	transport := &http.Transport{
		DialContext: dial, DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // self-signed
	}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// Metric returns one sample of a page of metrics, zero if the page does not have it. The name
// includes the labels.
func Metric(page, name string) float64 {
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			if v, err := strconv.ParseFloat(rest, 64); err == nil {
				return v
			}
		}
	}
	return 0
}
