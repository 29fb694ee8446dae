class Weir < Formula
  desc "Pipeline schedules and memory lifetimes for training"
  homepage "https://{{.Module}}"
  version "{{.Number}}"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "https://{{.Module}}/releases/download/v{{.Number}}/weir_{{.Number}}_darwin_arm64.tar.gz"
      sha256 "{{.Sums.darwin_arm64}}"
    end
    on_intel do
      url "https://{{.Module}}/releases/download/v{{.Number}}/weir_{{.Number}}_darwin_amd64.tar.gz"
      sha256 "{{.Sums.darwin_amd64}}"
    end
  end

  on_linux do
    on_arm do
      url "https://{{.Module}}/releases/download/v{{.Number}}/weir_{{.Number}}_linux_arm64.tar.gz"
      sha256 "{{.Sums.linux_arm64}}"
    end
    on_intel do
      url "https://{{.Module}}/releases/download/v{{.Number}}/weir_{{.Number}}_linux_amd64.tar.gz"
      sha256 "{{.Sums.linux_amd64}}"
    end
  end

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
