package objects

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
)

// Cause is why a request to an API server failed, as far as the remedy depends on it.
type Cause string

// Causes of failed requests.
const (
	// CauseUnauthorized: the API server does not accept the credential.
	CauseUnauthorized Cause = "unauthorized"
	// CauseForbidden: the credential is accepted, but the request is not allowed.
	CauseForbidden Cause = "forbidden"
	// CauseNotFound: the object does not exist.
	CauseNotFound Cause = "not-found"
	// CauseNoCRD: the kind of the object does not exist.
	CauseNoCRD Cause = "no-crd"
	// CauseTimeout: there was no answer in time.
	CauseTimeout Cause = "timeout"
	// CauseUnreachable: no connection to the API server could be made or kept.
	CauseUnreachable Cause = "unreachable"
	// CauseOther is any other answer of the API server.
	CauseOther Cause = "other"
)

// ErrorCause returns why a request to an API server failed, and the same in words for a message
// that names the API server already. The words leave out the path of the request, which a user
// cannot do anything about.
func ErrorCause(err error) (Cause, string) {
	var request *url.Error
	var network net.Error
	switch {
	case apierrors.IsUnauthorized(err):
		return CauseUnauthorized, "the credential is not accepted"
	case apierrors.IsForbidden(err):
		return CauseForbidden, "not allowed"
	case meta.IsNoMatchError(err):
		return CauseNoCRD, "Seamark's CRDs are not installed"
	case errors.As(err, &network) && network.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return CauseTimeout, "no answer in time"
	case errors.As(err, &request):
		return CauseUnreachable, request.Err.Error()
	case apierrors.IsNotFound(err):
		return CauseNotFound, strings.TrimSpace(err.Error())
	}
	return CauseOther, strings.TrimSpace(err.Error())
}

// ErrorText returns the words of ErrorCause.
func ErrorText(err error) string {
	_, text := ErrorCause(err)
	return text
}
