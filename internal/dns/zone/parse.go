package zone

import "strings"

// nameKind is the form of a queried name.
type nameKind uint8

const (
	nameUnknown      nameKind = iota // within the zone, but of no form that exists
	nameApex                         // the zone itself
	nameVersion                      // dns-version
	nameServer                       // ns.dns
	nameServerParent                 // dns
	nameServices                     // svc
	nameNamespace                    // namespace.svc
	nameService                      // service.namespace.svc
	nameBelowService                 // …service.namespace.svc
)

// parsedName is a name, split into its parts. The parts share the bytes of the name.
type parsedName struct {
	kind      nameKind
	namespace string
	key       string // service.namespace
	left      string // the labels before the key
}

// Lower returns a name in lower case, without a copy if it already is.
func Lower(name string) string {
	for i := range len(name) {
		if c := name[i]; 'A' <= c && c <= 'Z' {
			return strings.ToLower(name)
		}
	}
	return name
}

// Within reports whether a name is that of a zone or below it. Both are in lower case, in text
// form, with a dot at their end.
func Within(name, zone string) bool {
	if zone == "." {
		return true
	}
	before := len(name) - len(zone)
	if before < 0 || name[before:] != zone {
		return false
	}
	if before == 0 {
		return true
	}
	if name[before-1] != '.' {
		return false
	}
	// A dot inside a label is written as \. and a backslash as \\.
	backslashes := 0
	for i := before - 2; i >= 0 && name[i] == '\\'; i-- {
		backslashes++
	}
	return backslashes%2 == 0
}

// parse splits a name, in lower case and within the zone, into its parts. Escaped bytes are not
// decoded: the backslash stays in one of the parts, and no existing name contains one.
func parse(name, zone string) parsedName {
	if len(name) == len(zone) {
		return parsedName{kind: nameApex}
	}
	base := name[:len(name)-len(zone)-1]
	rest, last := cutLast(base)
	if last != "svc" {
		switch base {
		case "dns-version":
			return parsedName{kind: nameVersion}
		case "ns.dns":
			return parsedName{kind: nameServer}
		case "dns":
			return parsedName{kind: nameServerParent}
		}
		return parsedName{}
	}
	if rest == "" {
		return parsedName{kind: nameServices}
	}
	above, namespace := cutLast(rest)
	if above == "" {
		return parsedName{kind: nameNamespace, namespace: namespace}
	}
	left, service := cutLast(above)
	q := parsedName{kind: nameService, namespace: namespace, key: rest[len(above)-len(service):]}
	if left != "" {
		q.kind, q.left = nameBelowService, left
	}
	return q
}

// cutLast splits off the last label. rest is empty if there was only one.
func cutLast(labels string) (rest, last string) {
	if i := strings.LastIndexByte(labels, '.'); i >= 0 {
		return labels[:i], labels[i+1:]
	}
	return "", labels
}

// hasWildcard reports whether a name has a label "*".
func hasWildcard(name string) bool {
	return strings.HasPrefix(name, "*.") || strings.Contains(name, ".*.")
}
