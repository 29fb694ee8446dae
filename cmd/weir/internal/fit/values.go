package fit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-ml/weir/internal/formats/diagnostic"
)

// maxText is the maximum length of a description in bytes.
const maxText = 1 << 20

// Config is the result of reading a description.
type Config struct {
	Model Model
	// Setup is the training setup of Megatron's flags; zero for Hugging Face's config.json.
	Setup Setup
	// Ranks, VirtualStages and GlobalBatch come from Megatron's flags; 0 if they are absent.
	Ranks, VirtualStages, GlobalBatch int
	// Cut is the number of layers of each stage in Megatron's layout; nil without one.
	Cut []int
	// Unread names keys and flags that may change memory and are not supported.
	Unread []string
	// Assumed lists the keys that the description leaves open, each with the value that was assumed, such as
	// "num_key_value_heads 8".
	Assumed []string
}

// Read reads a description: the config.json of a Hugging Face model if it begins with {, otherwise
// Megatron-LM's flags, in the forms of command lines, scripts and tests: --flag VALUE, --flag=VALUE
// or --flag: VALUE. The elements of set are KEY=VALUE, with the names of flags without dashes; they
// override or add keys. Errors about the text wrap ErrModel and name the missing or unknown key, or
// the location of the fault.
func Read(r io.Reader, set []string) (*Config, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("fit: %w", err)
	case len(text) > maxText:
		return nil, diagnostic.Errorf(ErrModel, "the text is longer than %d bytes", maxText)
	case bytes.HasPrefix(text, []byte("\xff\xfe")), bytes.HasPrefix(text, []byte("\xfe\xff")):
		return nil, diagnostic.Errorf(ErrModel, "the text is in UTF-16, expected UTF-8: save it as UTF-8")
	}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	v := newValues()
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		name := ""
		if file, ok := r.(interface{ Name() string }); ok {
			name = file.Name()
		}
		return v.config(text, name, set)
	}
	return v.megatron(string(text), set)
}

// values holds the keys of a description with their texts, and the faults found in them.
type values struct {
	raw      map[string]string
	outer    map[string]string   // the keys outside of the language model of a multimodal config; nil for other configs
	defaults map[string]string   // values of absent keys
	several  map[string][]string // the values of flags that are given more than once; the last value counts
	read     map[string]bool
	assumed  []string
	faults
}

func newValues() *values {
	return &values{raw: map[string]string{}, defaults: map[string]string{}, several: map[string][]string{}, read: map[string]bool{}, faults: faults{kind: ErrModel}}
}

// override sets keys to the values of KEY=VALUE pairs.
func (v *values) override(set []string) {
	for _, one := range set {
		key, value, ok := strings.Cut(one, "=")
		if !ok || key == "" {
			v.add("%q is not KEY=VALUE", one)
		}
		v.raw[key] = value
		delete(v.several, key)
		if v.outer != nil {
			v.outer[key] = value
		}
	}
}

// finish returns the faults of the values or of the model, or c with Unread and Assumed. harmless lists the keys
// that change no memory, separated by white space. A key that is harmless only for some values is KEY=PATTERN. A
// flag (a key with dashes) whose value is false counts as absent, and so does a key of a JSON object whose value
// is null.
func (v *values) finish(c *Config, dashes, harmless string) (*Config, error) {
	if len(v.list) > 0 {
		return nil, errors.Join(v.list...)
	}
	if err := c.Model.Validate(); err != nil {
		if len(v.assumed) > 0 {
			v.add("the description leaves open, and these were assumed: %s: give others as --set KEY=VALUE", strings.Join(v.assumed, ", "))
		}
		return nil, errors.Join(append([]error{err}, v.list...)...)
	}
	safe := map[string]string{}
	for _, one := range strings.Fields(harmless) {
		key, pattern, _ := strings.Cut(one, "=")
		safe[key] = pattern
	}
	name := func(key, value string, read bool) {
		pattern, is := safe[key]
		switch {
		case read, dashes == "" && value == "null", dashes != "" && value == "false", is && pattern == "":
		case is && regexp.MustCompile("(?s)^("+pattern+")$").MatchString(value):
		default:
			c.Unread = append(c.Unread, dashes+key)
		}
	}
	for key, value := range v.raw {
		name(key, value, v.read[key])
	}
	for key, value := range v.outer {
		name(key, value, value == v.raw[key])
	}
	c.Assumed = v.assumed
	slices.Sort(c.Unread)
	c.Unread = slices.Compact(c.Unread)
	slices.Sort(c.Assumed)
	return c, nil
}

// value returns the text of a value, or that of its default. It returns "" if there is none, if the value is null,
// and, with a fault, if it contains a shell variable.
func (v *values) value(key string) string {
	value, given := v.raw[key]
	if !given {
		value = v.defaults[key]
	}
	if several := v.several[key]; !v.read[key] && len(several) > 0 {
		v.assumed = append(v.assumed, "--"+key+" "+value+lastOf(several))
	} else if _, err := strconv.Atoi(value); !v.read[key] && !given && err == nil {
		v.assumed = append(v.assumed, key+" "+value)
	}
	v.read[key] = true
	if strings.Contains(value, "$") {
		v.add("%s is %.80s, a variable of the shell: give it as --set %s=VALUE", key, value, key)
		return ""
	}
	if value == "null" {
		return ""
	}
	return value
}

// lastOf returns a note that the last one of several values is used.
func lastOf(several []string) string {
	return ", of " + strings.Join(several, " and ") + ", of which the last one is taken"
}

// whole returns the integer value of a key. If the key is not given, it adds a fault and returns 0.
func (v *values) whole(key string) int {
	before := len(v.list)
	if value := v.value(key); value == "" && len(v.list) == before {
		v.add("%s is missing: give it as --set %s=N", key, key)
		return 0
	} else if value == "" {
		return 0
	}
	return v.wholeOr(key, 0)
}

// wholeOr returns the integer value of a key, or other if it is not given. For any other value it adds a fault and
// returns 0.
func (v *values) wholeOr(key string, other int) int {
	value := v.value(key)
	if value == "" {
		return other
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 0 || n > maxWidth {
		v.add("%s is %.40s: expected a whole number from 0 to %d", key, value, maxWidth)
		return 0
	}
	return n
}

// positive reports whether a number is above 0. If the number is not given, it returns other.
func (v *values) positive(key string, other bool) bool {
	value := v.value(key)
	if value == "" {
		return other
	}
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n >= 0) {
		v.add("%s is %.40s: expected a number, 0 or more", key, value)
	}
	return n > 0
}

// evenHeads checks that the width is a multiple of the heads, if the key does not give the size of a head.
func (v *values) evenHeads(m *Model, key string) {
	if v.value(key) == "" && m.Heads > 0 && m.Hidden%m.Heads != 0 {
		v.add("a width of %d does not divide into %d attention heads: give the size of a head with --set %s=N", m.Hidden, m.Heads, key)
	}
}

// flag returns a value that is true or false.
func (v *values) flag(key string) bool {
	return v.choice(key, "", "true", "false") == "true"
}

// choice returns the value of a key, which must be one of the expected ones. If the key is not given, or has another
// value, which is a fault, choice returns the first one.
func (v *values) choice(key string, expected ...string) string {
	value := strings.Trim(v.value(key), `"`)
	if value == "" {
		return expected[0]
	}
	if !slices.Contains(expected, value) {
		v.add("%s is %.40s: expected %s", key, v.raw[key], strings.Trim(strings.Join(expected, ", "), ", "))
		return expected[0]
	}
	return value
}
