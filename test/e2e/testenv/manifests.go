package testenv

import (
	_ "embed"
	"strconv"
	"strings"
)

// WebName is the name by which pods of all clusters reach the Service of Web once it is exported.
const WebName = "web.shop.svc.clusterset.local"

// Client is the manifest of the namespace "shop" and of a pod "client" in it, for Call and Lookup.
//
//go:embed client.yaml
var Client string

//go:embed web.yaml
var web string

// Web returns the manifest of a Deployment "web" with so many replicas and of its Service.
func Web(replicas int) string { return strings.ReplaceAll(web, "$REPLICAS", strconv.Itoa(replicas)) }
