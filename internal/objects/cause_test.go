package objects

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestErrorCause(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	request := func(err error) error {
		return &url.Error{Op: "Get", URL: "https://broker:6443/api/v1/pods?limit=500", Err: err}
	}
	for _, test := range []struct {
		err   error
		cause Cause
		text  string
	}{
		{apierrors.NewUnauthorized("Unauthorized"), CauseUnauthorized, "the credential is not accepted"},
		{fmt.Errorf("list pods: %w", apierrors.NewForbidden(pods, "", errors.New("no role"))), CauseForbidden, "not allowed"},
		{apierrors.NewNotFound(pods, "web"), CauseNotFound, `pods "web" not found`},
		{&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "ServiceExport"}}, CauseNoCRD, "Seamark's CRDs are not installed"},
		{request(context.DeadlineExceeded), CauseTimeout, "no answer in time"},
		{context.DeadlineExceeded, CauseTimeout, "no answer in time"},
		{request(errors.New("connection refused")), CauseUnreachable, "connection refused"},
		{errors.New(" broken "), CauseOther, "broken"},
	} {
		if cause, text := ErrorCause(test.err); cause != test.cause || text != test.text {
			t.Errorf("%v: %s, %q; want %s, %q", test.err, cause, text, test.cause, test.text)
		}
	}
}
