// Package site makes the page that runs the command weir in a browser.
//
// The page is static. Write builds the command for WebAssembly, compresses it, and writes it to
// a folder together with the files of page/ and the wasm_exec.js of the Go installation that
// built the command. Any web server can serve the folder.
//
// page/worker.js runs the command once, with files in memory. page/weir.js is the page's
// script: it starts a worker for each run.
package site
