package harness

import "os"

// ShortEnv names the environment variable that makes tests of many minutes run in their short form,
// as in CI: every check runs, but not with every data plane. It is not go test's -short, with which
// property tests try fewer examples.
const ShortEnv = "SEAMARK_TEST_SHORT"

// Short reports whether tests run in their short form.
func Short() bool { return os.Getenv(ShortEnv) != "" }
