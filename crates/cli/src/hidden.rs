//! Passwords in the arguments of the process, which everybody on the machine can list: written over as soon as they are read.
//!
//! The kernel shows the memory that the arguments were put in, so changing it there is all it takes. A prompt, a file or the
//! variable `KILIM_URI` show nothing in the first place.

/// Puts `x` in place of passwords in connection strings.
#[cfg(target_os = "linux")]
pub(crate) fn hide_passwords() {
    let Some((start, end)) = place() else { return };
    // SAFETY: the kernel says that the arguments are there. The process has one thread now, and nobody holds a reference to
    // them: what was parsed is a copy.
    let arguments = unsafe { std::slice::from_raw_parts_mut(start as *mut u8, end - start) };
    for argument in arguments.split_mut(|byte| *byte == 0) {
        if let Some((from, to)) = password(argument) {
            argument[from..to].fill(b'x');
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn hide_passwords() {}

/// Where the arguments are: the fields 48 and 49 of `/proc/self/stat`, behind the name in parentheses, which is the second.
#[cfg(target_os = "linux")]
fn place() -> Option<(usize, usize)> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(45);
    let (start, end) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    (0 < start && start < end).then_some((start, end))
}

/// The bytes of the password in `mongodb://user:password@host`.
fn password(argument: &[u8]) -> Option<(usize, usize)> {
    let find = |part: &[u8], from: usize| {
        argument[from..].windows(part.len()).position(|window| window == part).map(|at| from + at)
    };
    let user = find(b"://", 0)? + 3;
    let end = find(b"/", user).or(find(b"?", user)).unwrap_or(argument.len());
    let at = user + argument[user..end].iter().rposition(|byte| *byte == b'@')?;
    let colon = find(b":", user).filter(|colon| *colon < at)?;
    Some((colon + 1, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_a_connection_string_is_found() {
        for (argument, found) in [
            ("--uri=mongodb://ann:secret@h/shop?authSource=admin", Some("secret")),
            ("mongodb://ann:s@cret@h:27017", Some("s@cret")),
            ("mongodb://ann@h:27017", None),
            ("mongodb://h:27017/?appName=a:b@c", None),
            ("--db", None),
        ] {
            let place = password(argument.as_bytes());
            assert_eq!(place.map(|(from, to)| &argument[from..to]), found, "{argument}");
        }
    }
}
