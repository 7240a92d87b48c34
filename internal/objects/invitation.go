package objects

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// TakeUp returns what an agent has to store of the invitation that the user applied, given what it
// has stored before. stored is nil before the first invitation.
//
// The token is the one that the broker issued last, by the broker's own clock. So an invitation
// that is applied again changes nothing, however old it is, and a new one is taken up. If the agent
// has renewed its token since that one was issued, the agent's own cannot be the one that it
// revoked. Everything else is as in the invitation, because the address of the broker may have
// changed. Settings that the invitation does not mention stay.
//
// TakeUp fails for an invitation to another clusterset, under another id or from another broker.
func TakeUp(invitation Membership, stored *Membership) (Membership, error) {
	if stored == nil {
		return invitation, nil
	}
	if !invitation.sameMember(*stored) {
		return *stored, fmt.Errorf("the invitation is for cluster %s of clusterset %s at %s, but this cluster is a member of clusterset %s as %s "+
			"at %s: run seamark leave first, or apply an invitation for that one",
			invitation.ClusterID, invitation.ClusterSet, invitation.Server, stored.ClusterSet, stored.ClusterID, stored.Server)
	}
	taken := invitation
	if issued(invitation.Token).Before(issued(stored.Token)) && invitation.provenSameServer(*stored) {
		taken.Token = stored.Token
	}
	taken.DataPlane = cmp.Or(invitation.DataPlane, stored.DataPlane)
	taken.UseClusterSetIP = cmp.Or(invitation.UseClusterSetIP, stored.UseClusterSetIP)
	return taken, nil
}

// sameMember reports whether two memberships are those of one cluster at one broker. A broker can
// get another address or another CA, but not both at once.
func (m Membership) sameMember(o Membership) bool {
	return m.ClusterID == o.ClusterID && m.ClusterSet == o.ClusterSet && m.Namespace == o.Namespace &&
		(m.Server == o.Server || bytes.Equal(m.CAData, o.CAData))
}

// provenSameServer reports whether the token of one membership may be sent to the server of the
// other. A CA that many servers share, which is none of its own, proves nothing.
func (m Membership) provenSameServer(o Membership) bool {
	return m.Server == o.Server || (len(m.CAData) > 0 && bytes.Equal(m.CAData, o.CAData))
}

func issued(token string) time.Time {
	at, _ := TokenTimes(token)
	return at
}

// TokenTimes reads when a token was issued and when it expires, by the clock of the API server that
// issued it. Both are zero for a token that does not say so. The signature is not checked: the
// times only decide which of the member's own tokens is used, and when it is renewed.
func TokenTimes(token string) (issued, expires time.Time) {
	var claims struct {
		Issued  int64 `json:"iat"`
		Expires int64 `json:"exp"`
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return issued, expires
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil || json.Unmarshal(payload, &claims) != nil || claims.Expires <= claims.Issued {
		return issued, expires
	}
	return time.Unix(claims.Issued, 0), time.Unix(claims.Expires, 0)
}
