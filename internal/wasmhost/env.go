package wasmhost

import (
	"slices"
	"strconv"
	"strings"

	"github.com/seed-8e62c83d/mur/internal/capsule"
)

// ChooseEnv picks from an environment what the manifest lets the guest see, in the manifest's order: the allowed
// names that do not look like a credential, and those listed as secrets. The last of two equal names counts.
func ChooseEnv(m *capsule.Manifest, environ []string) []string {
	values := make(map[string]string, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok {
			values[name] = value
		}
	}
	env := m.Capabilities.Env
	var out []string
	for _, name := range slices.Concat(env.Allow, env.Secrets) {
		value, ok := values[name]
		if !ok || looksSecret(name) && !slices.Contains(env.Secrets, name) {
			continue
		}
		delete(values, name)
		out = append(out, name+"="+value)
	}
	return out
}

// looksSecret says whether a variable of that name usually holds a credential.
func looksSecret(name string) bool {
	name = strings.ToUpper(name)
	for _, part := range []string{
		"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "APIKEY", "API_KEY", "ACCESS_KEY",
		"PRIVATE_KEY", "SSH_KEY", "COOKIE",
	} {
		if strings.Contains(name, part) {
			return true
		}
	}
	for _, word := range []string{"KEY", "AUTH", "PASS", "PWD", "PAT", "DSN"} {
		if word != "PWD" && name == word || strings.HasSuffix(name, "_"+word) {
			return true
		}
	}
	return slices.Contains([]string{"SSH_AUTH_SOCK", "DATABASE_URL", "KUBECONFIG", "NETRC"}, name)
}

// environment is what the guest sees: what was chosen, then the terminal, then the directory it starts in.
func (r *run) environment() []string {
	env := slices.Clone(r.cfg.Env)
	if size, errno := r.host.tty.look(); errno == errnoSuccess {
		if size.Col > 0 && size.Row > 0 {
			env = setEnv(env, "COLUMNS", strconv.Itoa(int(size.Col)))
			env = setEnv(env, "LINES", strconv.Itoa(int(size.Row)))
		}
		if r.cfg.Term != "" {
			env = setEnv(env, "TERM", r.cfg.Term)
		}
	}
	return setEnv(env, "PWD", r.manifest.Entry.Workdir)
}

func setEnv(env []string, name, value string) []string {
	env = slices.DeleteFunc(env, func(pair string) bool { return strings.HasPrefix(pair, name+"=") })
	return append(env, name+"="+value)
}
