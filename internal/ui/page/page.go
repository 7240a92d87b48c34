// Package page holds the files of the page. They are served as they are: no step builds them, and
// they load nothing from elsewhere.
package page

import "embed"

// Index is the file of every view.
const Index = "index.html"

// Files are the files of the page.
//
//go:embed *.html *.css *.js *.svg
var Files embed.FS
