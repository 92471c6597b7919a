//! `hostInfo`: what machine this is.

use kilim_bson::{Document, Value, doc};
use kilim_error::Result;

use super::build_info::host_name;
use super::update::now_ms;
use crate::dispatch::Call;

pub fn run(_: &mut Call<'_, '_>) -> Result<Document> {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    // With a capital, as MongoDB writes it.
    let system = if cfg!(target_os = "linux") { "Linux" } else { std::env::consts::OS };
    Ok(doc! {
        "system": {
            "currentTime": Value::DateTime(now_ms()),
            "hostname": host_name(),
            "cpuAddrSize": 64,
            "memSizeMB": memory_bytes() / (1024 * 1024),
            "memLimitMB": memory_bytes() / (1024 * 1024),
            "numCores": cores as i32,
            "cpuArch": std::env::consts::ARCH,
            "numaEnabled": false,
        },
        "os": {"type": system, "name": system, "version": ""},
        "extra": {},
    })
}

fn memory_bytes() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<i64>().ok());
    kilobytes.unwrap_or(0) * 1024
}
