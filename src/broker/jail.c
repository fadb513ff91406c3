#include "broker/jail.h"

#include <cap-ng.h>
#include <errno.h>
#include <linux/prctl.h>
#include <sched.h>
#include <seccomp.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* Answered with EPERM, so that a library that tries one goes on. */
static const char *const denied[] = {
    "execve",
    "execveat",
    "ptrace",
    "process_vm_readv",
    "process_vm_writev",
    "process_madvise",
    "kcmp",
    "pidfd_getfd",
    "pidfd_open",
    "pidfd_send_signal",
    "fork",
    "vfork",
    "mount",
    "umount2",
    "pivot_root",
    "chroot",
    "unshare",
    "setns",
    "open_tree",
    "move_mount",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "mount_setattr",
    "name_to_handle_at",
    "open_by_handle_at",
    "quotactl",
    "swapon",
    "swapoff",
    "acct",
    "syslog",
    "init_module",
    "finit_module",
    "delete_module",
    "kexec_load",
    "kexec_file_load",
    "reboot",
    "bpf",
    "perf_event_open",
    "userfaultfd",
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
    "keyctl",
    "add_key",
    "request_key",
    "iopl",
    "ioperm",
    "settimeofday",
    "clock_settime",
    "adjtimex",
    "clock_adjtime",
    "sethostname",
    "setdomainname",
    "setuid",
    "setgid",
    "setreuid",
    "setregid",
    "setresuid",
    "setresgid",
    "setgroups",
    "setfsuid",
    "setfsgid",
    "capset",
    "personality",
    "mknod",
    "mknodat",
    "lookup_dcookie",
    "vhangup",
    "modify_ldt",
    "move_pages",
    "migrate_pages",
    "mbind",
    "set_mempolicy",
    "nfsservctl",
    "kill",
    "tkill",
    "rt_sigqueueinfo",
    "rt_tgsigqueueinfo",
    "chmod",
    "fchmod",
    "fchmodat",
    "chown",
    "fchown",
    "lchown",
    "fchownat",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "link",
    "linkat",
    "symlink",
    "symlinkat",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
    "truncate",
    "creat",

    "listen",
};

static err deny_calls(scmp_filter_ctx filter)
{
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        int number = seccomp_syscall_resolve_name(denied[i]);
        if (number == __NR_SCMP_ERROR)
            continue; /* a call this architecture never had */
        int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
        if (rc < 0)
            return fail(E_INTERNAL, "seccomp rule for %s: %s", denied[i], strerror(-rc));
    }
    return 0;
}

/* Threads, but no processes. clone3 hides its flags behind a pointer: without it glibc takes clone.
 */
static err deny_processes(scmp_filter_ctx filter)
{
    int rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (rc == 0)
        rc = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                              SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
    return rc < 0 ? fail(E_INTERNAL, "seccomp rule for processes: %s", strerror(-rc)) : 0;
}

static err load_filter(void)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (filter == NULL)
        return fail(E_INTERNAL, "seccomp is not available");
    err e = deny_calls(filter);
    if (!e)
        e = deny_processes(filter);
    if (!e && seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1) < 0)
        e = fail(E_INTERNAL, "seccomp cannot bind all threads");
    int rc = e ? 0 : seccomp_load(filter);
    if (rc < 0)
        e = fail(E_INTERNAL, "seccomp filter: %s", strerror(-rc));
    seccomp_release(filter);
    return e;
}

static err drop_capabilities(void)
{
    if (capng_get_caps_process() != 0)
        return fail(E_INTERNAL, "capabilities cannot be read");
    if (capng_have_capabilities(CAPNG_SELECT_BOTH) == CAPNG_NONE)
        return 0;
    capng_clear(CAPNG_SELECT_BOTH);
    /* The bounding set can only be emptied with CAP_SETPCAP; no_new_privs makes it void anyway. */
    if (capng_apply(CAPNG_SELECT_CAPS) != 0)
        return fail(E_INTERNAL, "capabilities cannot be dropped");
    return 0;
}

err jail_enter(void)
{
    struct rlimit none = {0, 0};
    if (setrlimit(RLIMIT_CORE, &none) < 0)
        return fail_errno("setrlimit RLIMIT_CORE");
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return fail_errno("prctl PR_SET_DUMPABLE");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return fail_errno("prctl PR_SET_NO_NEW_PRIVS");
    if (drop_capabilities() != 0)
        return E_INTERNAL;
    return load_filter();
}
