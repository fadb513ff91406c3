#include "sandbox/linux/confine.h"

#include "base/fd.h"

#include <assert.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP(cap) (UINT64_C(1) << (cap))
static const uint64_t kept = KEEP(CAP_CHOWN) | KEEP(CAP_DAC_OVERRIDE) | KEEP(CAP_FSETID) |
                             KEEP(CAP_FOWNER) | KEEP(CAP_SETGID) | KEEP(CAP_SETUID) |
                             KEEP(CAP_SETPCAP) | KEEP(CAP_NET_BIND_SERVICE) | KEEP(CAP_SYS_CHROOT) |
                             KEEP(CAP_KILL);

err confine_capabilities(void)
{
    for (int cap = 0; cap < 64; cap++) {
        /* EINVAL: beyond the last one this kernel knows. */
        if (!(kept & KEEP(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0 && errno != EINVAL)
            return fail_errno("drop capability %d", cap);
    }
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0)
        return fail_errno("clear the ambient capabilities");
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    const uint32_t low = (uint32_t)kept, high = (uint32_t)(kept >> 32);
    struct __user_cap_data_struct data[2] = {{.effective = low, .permitted = low},
                                             {.effective = high, .permitted = high}};
    if (syscall(SYS_capset, &header, data) < 0)
        return fail_errno("reduce the capabilities");
    return 0;
}

static const char *const denied[] = {
    /* mounts and namespaces */
    "mount", "umount", "umount2", "pivot_root", "move_mount", "open_tree", "open_tree_attr",
    "fsopen", "fsmount", "fspick", "fsconfig", "mount_setattr", "statmount", "listmount", "setns",
    "unshare",
    /* the kernel itself */
    "bpf", "perf_event_open", "kexec_load", "kexec_file_load", "init_module", "finit_module",
    "delete_module", "create_module", "query_module", "get_kernel_syms", "reboot", "iopl", "ioperm",
    "syslog", "acct", "quotactl", "quotactl_fd", "swapon", "swapoff", "lookup_dcookie",
    "nfsservctl", "vm86", "vm86old", "_sysctl", "sysfs", "uselib", "ustat",
    /* clocks */
    "settimeofday", "clock_settime", "clock_settime64", "clock_adjtime", "clock_adjtime64",
    "adjtimex", "stime",
    /* objects without namespaces, and a history of holes */
    "keyctl", "add_key", "request_key", "open_by_handle_at", "name_to_handle_at", "userfaultfd",
    "io_uring_setup", "io_uring_enter", "io_uring_register", "vmsplice", "process_vm_readv",
    "process_vm_writev", "kcmp", "fanotify_init", "get_mempolicy", "set_mempolicy", "mbind",
    "migrate_pages", "move_pages", "pidfd_getfd"};

static int deny_names(scmp_filter_ctx filter)
{
    for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
        int nr = seccomp_syscall_resolve_name(denied[i]);
        if (nr == __NR_SCMP_ERROR)
            continue; /* younger than this libseccomp, or of another architecture */
        int r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), nr, 0);
        if (r < 0 && r != -EDOM)
            return r;
    }
    return 0;
}

static int deny_arguments(scmp_filter_ctx filter)
{
    const uint32_t eperm = SCMP_ACT_ERRNO(EPERM), no_family = SCMP_ACT_ERRNO(EAFNOSUPPORT);
    int r = seccomp_rule_add(filter, eperm, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_NEWUSER, CLONE_NEWUSER));
    if (r == 0) /* its flags lie in memory, out of a filter's sight: callers fall back to clone */
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    static const unsigned families[] = {AF_VSOCK, AF_ALG, AF_PACKET, AF_KEY, AF_TIPC, AF_RDS};
    for (size_t i = 0; r == 0 && i < sizeof families / sizeof *families; i++)
        r = seccomp_rule_add(filter, no_family, SCMP_SYS(socket), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, families[i]));
    static const unsigned requests[] = {TIOCSTI, TIOCLINUX};
    for (size_t i = 0; r == 0 && i < sizeof requests / sizeof *requests; i++)
        r = seccomp_rule_add(filter, eperm, SCMP_SYS(ioctl), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, requests[i]));
    /* Nobody inside sets limits for pi-hands, which has the same user. */
    if (r == 0)
        r = seccomp_rule_add(filter, eperm, SCMP_SYS(prlimit64), 2,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, UINT32_MAX, 1), SCMP_A2(SCMP_CMP_NE, 0));
    return r;
}

#define FILTER_MAX 1024 /* instructions; some 110 are in use */

static struct sock_filter program[FILTER_MAX];
static unsigned short program_length;

/* libseccomp writes the finished filter only to a descriptor. */
static err export_filter(scmp_filter_ctx filter)
{
    AUTO_FD fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0)
        return fail_errno("make a memory file for the system call filter");
    int r = seccomp_export_bpf(filter, fd);
    ssize_t n = r < 0 ? -1 : pread(fd, program, sizeof program, 0);
    if (n <= 0 || (size_t)n == sizeof program)
        return fail(E_INTERNAL, "build the system call filter: %s", strerror(r < 0 ? -r : E2BIG));
    program_length = (unsigned short)((size_t)n / sizeof program[0]);
    return 0;
}

err confine_prepare(void)
{
    if (program_length > 0)
        return 0;
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return fail(E_INTERNAL, "start a system call filter");
    seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2); /* a tree: fewer steps per call */
    /* 32-bit system calls have other numbers, so none of them is let through. */
    seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
    int r = deny_names(filter);
    if (r == 0)
        r = deny_arguments(filter);
    err e = r < 0 ? fail(E_INTERNAL, "fill the system call filter: %s", strerror(-r))
                  : export_filter(filter);
    seccomp_release(filter);
    return e;
}

err confine_system_calls(void)
{
    assert(program_length > 0);
    const struct sock_fprog filter = {.len = program_length, .filter = program};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        return fail_errno("load the system call filter");
    return 0;
}
