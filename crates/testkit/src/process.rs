//! A child process that does not outlive its owner.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long a clean stop may take before it counts as a hang.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

pub struct Process {
    child: Child,
}

impl Process {
    pub fn spawn(command: &mut Command) -> Result<Process> {
        // SAFETY: prctl is async-signal-safe and touches no memory of ours. Without it, a test run
        // ended by a signal would leave its servers behind, since no destructor runs then.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Process { child })
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Asks for a clean stop and waits for it.
    pub fn terminate(&mut self) -> Result<ExitStatus> {
        // SAFETY: the child has not been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGTERM) };
        let deadline = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < deadline {
            if let Some(status) = self.has_ended() {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        anyhow::bail!("process {} did not stop within {STOP_TIMEOUT:?}", self.id())
    }

    /// Kill -9.
    pub fn kill(&mut self) {
        // Both fail only if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
