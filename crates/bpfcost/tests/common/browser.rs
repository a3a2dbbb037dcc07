//! A headless Chromium, spoken to over its debugging pipe (Chrome DevTools Protocol, one JSON
//! message up to each NUL), so that a test sees a page as people do. No crate, no port, no network.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use bpfcost_process::wait_until;
use serde_json::{Value, json};
use tempfile::TempDir;

/// No answer takes longer, on a busy machine too.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Debian's Chromium, or the one that `BPFCOST_CHROMIUM` names.
pub fn find() -> Option<PathBuf> {
    let path =
        env::var_os("BPFCOST_CHROMIUM").map_or_else(|| "/usr/bin/chromium".into(), PathBuf::from);
    path.exists().then_some(path)
}

/// A browser with one page. Dropping it ends it.
pub struct Browser {
    child: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    next: u64,
    session: Option<String>,
    /// Complaints of the page: console errors, exceptions, refused loads.
    pub complaints: Vec<String>,
    _profile: TempDir,
}

impl Browser {
    /// Starts it with its own profile.
    pub fn start(chromium: &Path) -> Result<Self> {
        let profile = tempfile::tempdir()?;
        // Chromium takes commands on descriptor 3 and answers on 4: the shell moves our pipes there.
        let mut child = Command::new("/bin/sh")
            .args([
                "-c",
                "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
            ])
            .arg(chromium)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("Chromium did not start")?;
        let commands = child.stdin.take().context("no pipe to Chromium")?;
        let answers = child.stdout.take().context("no pipe from Chromium")?;
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                if let Ok(message) = serde_json::from_slice(&message)
                    && sender.send(message).is_err()
                {
                    return;
                }
            }
        });
        let mut browser = Browser {
            child,
            commands,
            messages,
            next: 1,
            session: None,
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))?;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}))?;
        }
        Ok(browser)
    }

    /// Gives a command and waits for its answer.
    pub fn call(&mut self, method: &str, params: Value) -> Result<Value> {
        let id = self.next;
        self.next += 1;
        let mut command = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = &self.session {
            command["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&command)?;
        bytes.push(0);
        self.commands.write_all(&bytes)?;
        let message = self.wait(|message| message["id"] == json!(id), method)?;
        match message.get("error") {
            Some(error) => bail!("{method}: {error}"),
            None => Ok(message["result"].clone()),
        }
    }

    fn wait(&mut self, wanted: impl Fn(&Value) -> bool, what: &str) -> Result<Value> {
        let end = Instant::now() + TIMEOUT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let message = self
                .messages
                .recv_timeout(left)
                .with_context(|| format!("Chromium did not answer: {what}"))?;
            self.note(&message);
            if wanted(&message) {
                return Ok(message);
            }
        }
    }

    fn note(&mut self, message: &Value) {
        let params = &message["params"];
        let bad = match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                params["type"] == "error" || params["type"] == "warning"
            }
            Some("Log.entryAdded") => params["entry"]["level"] == "error",
            Some("Network.requestWillBeSent") => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                !(url.starts_with("file:") || url.starts_with("data:") || url.starts_with("about:"))
            }
            _ => false,
        };
        if bad {
            self.complaints.push(params.to_string());
        }
    }

    /// Opens a file at a width, in a scheme (`light`, `dark`) or medium (`print`).
    pub fn open(&mut self, file: &Path, width: u32, look: &str) -> Result<()> {
        let size =
            json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size)?;
        let scheme = if look == "dark" { "dark" } else { "light" };
        let medium = if look == "print" { "print" } else { "screen" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let media = json!({ "media": medium, "features": features });
        self.call("Emulation.setEmulatedMedia", media)?;
        self.call(
            "Page.navigate",
            json!({ "url": format!("file://{}", file.display()) }),
        )?;
        self.wait(|message| message["method"] == "Page.loadEventFired", "load")?;
        Ok(())
    }

    /// The value of an expression in the page.
    pub fn eval(&mut self, expression: &str) -> Result<Value> {
        let params =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let answer = self.call("Runtime.evaluate", params)?;
        match answer.get("exceptionDetails") {
            Some(details) => bail!("{expression}: {details}"),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Clicks the middle of what a selector finds, as a mouse does.
    pub fn click(&mut self, selector: &str) -> Result<()> {
        let place = self.eval(&format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{block: 'center'}});
             const r = e.getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; }})()",
            json!(selector)
        ))?;
        for kind in ["mousePressed", "mouseReleased"] {
            let params = json!({ "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", params)?;
        }
        Ok(())
    }

    /// Presses a key where the focus is.
    pub fn press(&mut self, key: &str, code: u32, text: &str) -> Result<()> {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code,
                                 "text": if kind == "keyDown" { text } else { "" } });
            self.call("Input.dispatchKeyEvent", params)?;
        }
        Ok(())
    }

    /// The whole page in PNGs of at most 1,200 pixels in height, each in base64.
    pub fn screenshots(&mut self) -> Result<Vec<String>> {
        let size = self.eval("[innerWidth, document.documentElement.scrollHeight]")?;
        let tall = size[1].as_f64().unwrap_or_default();
        let mut shots = Vec::new();
        let mut y = 0.0;
        while y < tall {
            let height = (tall - y).min(1_200.0);
            let clip = json!({ "x": 0, "y": y, "width": size[0], "height": height, "scale": 1 });
            let params = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
            let answer = self.call("Page.captureScreenshot", params)?;
            shots.push(answer["data"].as_str().unwrap_or_default().to_owned());
            y += height;
        }
        Ok(shots)
    }

    /// The page as a PDF in base64, as the print dialogue makes it.
    pub fn pdf(&mut self) -> Result<String> {
        let params = json!({ "printBackground": true, "preferCSSPageSize": true });
        let answer = self.call("Page.printToPDF", params)?;
        Ok(answer["data"].as_str().unwrap_or_default().to_owned())
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        let closed = self.call("Browser.close", json!({})).is_ok();
        let limit = Duration::from_secs(if closed { 10 } else { 0 });
        let has_ended = || matches!(self.child.try_wait(), Ok(Some(_)));
        if !wait_until(limit, Duration::from_millis(20), has_ended) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
