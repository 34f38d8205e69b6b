package cli

import (
	"fmt"
	"os"
	"os/user"
	"strconv"

	"github.com/seed-8e62c83d/mur/internal/machine"
)

// examineLogin finds out whether sessions that are started from here outlive the
// logout.
func (d *deps) examineLogin() []finding {
	login, err := machine.OwnLogin()
	if err != nil {
		return []finding{{What: "login", State: fit, Found: "not known: " + err.Error()}}
	}
	if login.Scope == "" && login.Manager == "" {
		return []finding{{What: "login", State: fit, Found: "no login session of systemd: nothing ends with a logout"}}
	}
	name := d.loginName(login)
	policy, _ := machine.ReadKillPolicy("/") // what cannot be read is not known
	return []finding{ofLogin(login, name, machine.Lingers(name), policy)}
}

// loginName is whose login it is, which after su(1) is not who we are.
func (d *deps) loginName(login machine.Login) string {
	uid := login.UID
	if uid == "" {
		uid = strconv.Itoa(os.Geteuid())
	}
	if u, err := user.LookupId(uid); err == nil {
		return u.Username
	}
	return d.getenv("USER")
}

// throughManager starts a session where only lingering decides about its end.
const throughManager = "systemd-run --user --scope --quiet mur start -d -- PROGRAM"

// ofLogin judges after logind.conf(5): what is in a login's own scope is killed at
// logout or not, whether the user lingers or not; what is in the user's manager
// ends with the manager, which is when the last login ends, unless the user lingers.
func ofLogin(login machine.Login, name string, lingers bool, policy machine.KillPolicy) finding {
	linger := "loginctl enable-linger"
	if name != "" {
		linger += " " + quoted([]string{name})
	}
	lingering := "no lingering"
	if lingers {
		lingering = "lingering"
	}
	if login.Manager != "" {
		found := login.Manager + ", " + lingering
		if lingers {
			return finding{What: "login", State: fit, Found: found}
		}
		return worse("login", degraded, found, "sessions started from here end with your last logout", linger)
	}
	kills, known, from := policy.Kills(name)
	fix := throughManager
	if !lingers {
		fix = linger + ", and then: " + throughManager
	}
	where := login.Scope + ", " + lingering
	switch {
	case !known:
		return worse("login", degraded, where+", KillUserProcesses is set nowhere",
			"sessions started from here may end with this logout: systemd kills them unless it was built not to", fix)
	case kills:
		return worse("login", degraded, fmt.Sprintf("%s, processes are killed at logout (%s)", where, from),
			"sessions started from here end with this logout", fix)
	default:
		return finding{What: "login", State: fit, Found: fmt.Sprintf("%s, processes are left alone at logout (%s)", where, from)}
	}
}
