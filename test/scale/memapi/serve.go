package memapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

const jsonType = "application/json"

// serverVersion is what the server says at /version.
const serverVersion = `{"major":"1","minor":"36","gitVersion":"v1.36.0"}`

// RoundTrip implements http.RoundTripper: it answers a request without a connection.
func (s *Server) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer req.Body.Close() //nolint:errcheck // it was only read
	}
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if req.URL.Path == "/version" {
		return respond(req, http.StatusOK, []byte(serverVersion)), nil
	}
	if strings.HasSuffix(req.URL.Path, "/events") && req.Method != http.MethodGet {
		return s.discard(req)
	}
	t, ok := parsePath(req.URL.Path)
	if !ok {
		f := &failure{http.StatusNotFound, metav1.StatusReasonNotFound, "the server does not serve " + req.URL.Path, nil}
		return respond(req, f.code, f.text()), nil
	}
	if req.Method == http.MethodGet {
		return s.read(req, t)
	}
	code, text, err := s.write(req, t)
	if err != nil {
		return nil, err
	}
	return respond(req, code, text), nil
}

func respond(req *http.Request, code int, text []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": []string{jsonType}}, Request: req,
		Body: io.NopCloser(bytes.NewReader(text)), ContentLength: int64(len(text)),
	}
}

// discard answers the creation of an event, which no simulation reads.
func (s *Server) discard(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	return respond(req, http.StatusCreated, body), nil
}

func (s *Server) read(req *http.Request, t target) (*http.Response, error) {
	query := req.URL.Query()
	metadataOnly := strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata;")
	if t.name != "" {
		s.mu.Lock()
		obj := s.collection(t.kind.resource).objects[types.NamespacedName{Namespace: t.namespace, Name: t.name}]
		s.mu.Unlock()
		if obj == nil {
			f := notFound(t.kind, t.name)
			return respond(req, f.code, f.text()), nil
		}
		text := obj.text
		if metadataOnly {
			text = partial(text)
		}
		return respond(req, http.StatusOK, text), nil
	}
	selected, err := newSelection(t.namespace, query)
	if err != nil {
		return nil, err
	}
	if watch, _ := strconv.ParseBool(query.Get("watch")); watch {
		return s.watch(req, t.kind, selected, query), nil
	}
	return respond(req, http.StatusOK, s.list(t.kind, selected)), nil
}

// partial returns the metadata of an object as clients receive it that ask for nothing else.
func partial(text []byte) []byte {
	var obj struct {
		Metadata json.RawMessage `json:"metadata"`
	}
	if json.Unmarshal(text, &obj) != nil {
		return text
	}
	return slices.Concat([]byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":`), obj.Metadata, []byte("}"))
}

// list returns the selected objects in order.
func (s *Server) list(k kind, selected selection) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, k.name, k.apiVersion(), s.version)
	for i, obj := range s.collection(k.resource).sorted(selected) {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(obj.text)
	}
	b.WriteString("]}")
	return b.Bytes()
}

func (c *collection) sorted(selected selection) []*object {
	var out []*object
	for _, obj := range c.objects {
		if selected.matches(obj) {
			out = append(out, obj)
		}
	}
	slices.SortFunc(out, func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
	return out
}

// write makes one change and returns the answer.
func (s *Server) write(req *http.Request, t target) (code int, text []byte, err error) {
	var raw []byte
	if req.Body != nil {
		if raw, err = io.ReadAll(req.Body); err != nil {
			return 0, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: t.namespace, Name: t.name}
	var obj *object
	var f *failure
	switch code = http.StatusOK; {
	case req.Method == http.MethodDelete && t.name != "":
		var options metav1.DeleteOptions
		if len(raw) > 0 {
			if err := json.Unmarshal(raw, &options); err != nil {
				return 0, nil, err
			}
		}
		if f = s.remove(t.kind, key, options.Preconditions); f == nil {
			return code, []byte(`{"kind":"Status","apiVersion":"v1","status":"Success"}`), nil
		}
	case req.Method == http.MethodPost, req.Method == http.MethodPut:
		var body content
		if err := json.Unmarshal(raw, &body); err != nil {
			return 0, nil, fmt.Errorf("decode %s %s: %w", req.Method, req.URL.Path, err)
		}
		// Typed clients may leave these out.
		body["kind"], body["apiVersion"] = t.kind.name, t.kind.apiVersion()
		if req.Method == http.MethodPost {
			code = http.StatusCreated
			obj, f = s.create(t.kind, t.namespace, body)
		} else {
			obj, f = s.update(t.kind, key, body, t.subresource == "status")
		}
	default:
		f = fail(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, req.Method+" is not simulated", t.kind, t.name)
	}
	if f != nil {
		return f.code, f.text(), nil
	}
	return code, obj.text, nil
}

// selection is what a list or a watch asks for.
type selection struct {
	namespace string
	labels    labels.Selector
	fields    fields.Selector
}

func newSelection(namespace string, query url.Values) (selection, error) {
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selection{}, err
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	return selection{namespace, byLabel, byField}, err
}

func (s selection) matches(obj *object) bool {
	return obj != nil && (s.namespace == "" || s.namespace == obj.key.Namespace) && s.labels.Matches(labels.Set(obj.labels)) &&
		(s.fields.Empty() || s.fields.Matches(fields.Set{"metadata.name": obj.key.Name, "metadata.namespace": obj.key.Namespace}))
}
