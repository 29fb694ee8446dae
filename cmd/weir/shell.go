package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	kongcompletion "github.com/jotaen/kong-completion"
	posener "github.com/posener/complete"

	"github.com/weir-ml/weir/cmd/weir/internal/explain"
	"github.com/weir-ml/weir/internal/formats/spelling"
	"github.com/weir-ml/weir/schedule"
)

// helpCmd shows the help of a command, as the flag --help does, or explains an error.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command, such as mem plan; or an error of the library, by its name (ErrLeak), its text or an excerpt; or errors, for their names."`
	Man     bool     `help:"Print the manual page of all commands: weir help --man | man -l -"`
}

// Run prints the help, the manual page, or the explanation of an error.
func (c *helpCmd) Run(s *streams, parser *kong.Kong) error {
	if c.Man {
		writeManual(s.out, parser)
		return nil
	}
	text := strings.Join(c.Command, " ")
	explained := explain.Error(text)
	if text == "errors" {
		explained = strings.Join(explain.Names(), "\n")
	}
	first := func(n *kong.Node) bool { return n.Name == c.Command[0] }
	if explained == "" && (len(c.Command) > 2 || len(c.Command) > 0 && !slices.ContainsFunc(parser.Model.Children, first)) {
		explained = explain.Excerpt(text) // The longest name of a command has two words.
	}
	if explained != "" {
		fmt.Fprintln(s.text, explained)
		return nil
	}
	if _, err := parser.Parse(append(c.Command, "--help")); err != nil {
		var names []string
		for _, name := range explain.Names() {
			_, short, _ := strings.Cut(name, ".")
			names = append(names, short)
		}
		if hint, _, alike := strings.Cut(spelling.Hint(text, names), "?"); alike && strings.HasPrefix(text, "Err") {
			return usage("unexpected argument %s, %s? weir help errors lists all errors", text, hint)
		}
		return usage("%w: give a command, or an error that weir help errors lists", err)
	}
	return nil
}

// completionCmd prints a script that completes commands, flags and schedules.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help returns the text that is printed below the flags.
func (completionCmd) Help() string {
	return `For example in ~/.bashrc: source <(weir completion bash). In ~/.zshrc: source <(weir completion zsh). In ~/.config/fish/config.fish: weir completion fish | source.`
}

// Run prints the script.
func (c *completionCmd) Run(ctx *kong.Context) error {
	if c.Shell != "zsh" {
		return (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(ctx)
	}
	// The script calls compdef, which does not exist if .zshrc does not load compinit.
	if _, err := fmt.Fprintln(ctx.Stdout, "#compdef weir\n(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }"); err != nil {
		return err
	}
	if err := (&kongcompletion.Completion{Shell: c.Shell, Code: true}).Run(ctx); err != nil {
		return err
	}
	// zsh may also load the script as the function _weir, at the first completion. The function must
	// then complete.
	_, err := fmt.Fprintln(ctx.Stdout, `[[ $funcstack[1] != _weir ]] || ${=_comps[weir]}`)
	return err
}

// complete answers a shell's request for completions, if there is one, and then calls the parser's Exit.
func complete(parser *kong.Kong) {
	kongcompletion.Register(parser,
		kongcompletion.WithPredictor("schedule", posener.PredictSet(schedule.Names()...)),
		kongcompletion.WithPredictor("plan", posener.PredictOr(posener.PredictSet(schedule.Names()...), posener.PredictFiles("*"))),
		kongcompletion.WithPredictor("file", posener.PredictFiles("*")))
}

// release is the version of a build from a source distribution, which has no repository that states the
// version. The linker sets it.
var release string

// version returns the version, the version of Go, and the platform.
func version() string {
	built := "(unknown)"
	if info, ok := debug.ReadBuildInfo(); ok {
		built = cmp.Or(release, info.Main.Version)
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && (built == "" || built == "(devel)") {
				built = s.Value[:min(len(s.Value), 12)]
			}
		}
	}
	return fmt.Sprintf("weir %s %s %s/%s", built, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
