class Weir < Formula
  desc "Pipeline schedules and memory lifetimes for training"
  homepage "https://{{.Module}}"
  version "{{.Number}}"
  license "Apache-2.0"
{{range .Archives}}
  on_{{.System}} do
    on_{{.Processor}} do
      url "https://{{$.Module}}/releases/download/{{$.Version}}/{{.Name}}"
      sha256 "{{.Sum}}"
    end
  end
{{end}}
  def install
    bin.install "weir"
    man1.install "weir.1"
    bash_completion.install "completions/weir.bash" => "weir"
    zsh_completion.install "completions/_weir"
    fish_completion.install "completions/weir.fish"
  end

  test do
    assert_match "makespan", shell_output("#{bin}/weir sim zb-v")
  end
end
