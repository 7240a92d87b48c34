// Package brokeradmin sets up a broker, invites members to it, and removes them; on the side of a member it joins and leaves.
package brokeradmin
