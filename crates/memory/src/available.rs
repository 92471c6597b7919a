//! How much memory the process may use: the machine's, or less in a container.

use std::fs;
use std::path::Path;

/// Where Linux shows the groups that limit processes.
const GROUPS: &str = "/sys/fs/cgroup";

/// The machine's memory, or the smallest limit of the groups that the process is in.
pub fn available_bytes() -> u64 {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine_bytes().min(group_limit(Path::new(GROUPS), &membership).unwrap_or(u64::MAX))
}

fn machine_bytes() -> u64 {
    // SAFETY: sysconf reads a number and touches no memory of ours.
    let (pages, page_bytes) =
        unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page_bytes).unwrap_or(0))
}

/// The smallest limit on the way from the process's group to the root, of both versions of groups. `membership` has
/// lines of an id, controllers and a path, separated by colons.
fn group_limit(groups: &Path, membership: &str) -> Option<u64> {
    let mut limits = Vec::new();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (groups.to_path_buf(), "memory.max"),
            _ if controllers.split(',').any(|each| each == "memory") => {
                (groups.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let group = Path::new(path.trim_start_matches('/'));
        // In a container the path may be that of the host; the root then is the container's own group.
        for place in group.ancestors() {
            let limit = fs::read_to_string(root.join(place).join(file));
            limits.extend(limit.ok().and_then(|limit| limit.trim().parse::<u64>().ok()));
        }
    }
    limits.into_iter().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_limit_on_the_way_to_the_root_counts() {
        let groups = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = groups.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let limit = |membership: &str| group_limit(groups.path(), membership);
        assert_eq!(limit("0::/a/b\n"), None);
        write("a/memory.max", "1000\n");
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("0::/a/b\n"), Some(1000));
        write("a/b/memory.max", "500\n");
        assert_eq!(limit("0::/a/b\n"), Some(500));
        assert_eq!(limit("0::/elsewhere\n"), None);
        write("memory/x/memory.limit_in_bytes", "300");
        assert_eq!(limit("4:cpu,memory:/x\n0::/a\n"), Some(300));
    }
}
