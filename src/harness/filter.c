/* The host's system call filter: all that Node does not need and an attacker would want. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "harness/confine.h"

/* Refused whatever the arguments. */
static const int refused[] = {
    /* other programs */
    SCMP_SYS(execve),
    SCMP_SYS(fork),
    SCMP_SYS(vfork),
    SCMP_SYS(memfd_create),
    SCMP_SYS(memfd_secret),
    /* other processes */
    SCMP_SYS(ptrace),
    SCMP_SYS(process_vm_readv),
    SCMP_SYS(process_vm_writev),
    SCMP_SYS(process_madvise),
    SCMP_SYS(kcmp),
    SCMP_SYS(tkill),
    SCMP_SYS(rt_sigqueueinfo),
    SCMP_SYS(rt_tgsigqueueinfo),
    SCMP_SYS(pidfd_open),
    SCMP_SYS(pidfd_getfd),
    SCMP_SYS(pidfd_send_signal),
    SCMP_SYS(setpriority),
    SCMP_SYS(migrate_pages),
    SCMP_SYS(move_pages),
    /* files, beyond reading */
    SCMP_SYS(creat),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(mknod),
    SCMP_SYS(mknodat),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(rmdir),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(link),
    SCMP_SYS(linkat),
    SCMP_SYS(symlink),
    SCMP_SYS(symlinkat),
    SCMP_SYS(truncate),
    SCMP_SYS(chmod),
    SCMP_SYS(fchmod),
    SCMP_SYS(fchmodat),
    SCMP_SYS(chown),
    SCMP_SYS(fchown),
    SCMP_SYS(lchown),
    SCMP_SYS(fchownat),
    SCMP_SYS(utime),
    SCMP_SYS(utimes),
    SCMP_SYS(utimensat),
    SCMP_SYS(futimesat),
    SCMP_SYS(setxattr),
    SCMP_SYS(lsetxattr),
    SCMP_SYS(fsetxattr),
    SCMP_SYS(removexattr),
    SCMP_SYS(lremovexattr),
    SCMP_SYS(fremovexattr),
    SCMP_SYS(name_to_handle_at),
    SCMP_SYS(open_by_handle_at),
    SCMP_SYS(swapon),
    SCMP_SYS(swapoff),
    SCMP_SYS(quotactl),
    SCMP_SYS(fanotify_init),
    SCMP_SYS(inotify_init),
    SCMP_SYS(inotify_init1),
    /* serving others */
    SCMP_SYS(bind),
    SCMP_SYS(listen),
    SCMP_SYS(accept),
    SCMP_SYS(accept4),
    /* namespaces and mounts */
    SCMP_SYS(unshare),
    SCMP_SYS(setns),
    SCMP_SYS(mount),
    SCMP_SYS(umount2),
    SCMP_SYS(pivot_root),
    SCMP_SYS(chroot),
    SCMP_SYS(open_tree),
    SCMP_SYS(move_mount),
    SCMP_SYS(fsopen),
    SCMP_SYS(fsconfig),
    SCMP_SYS(fsmount),
    SCMP_SYS(fspick),
    SCMP_SYS(mount_setattr),
    SCMP_SYS(sethostname),
    SCMP_SYS(setdomainname),
    /* the kernel's larger doors */
    SCMP_SYS(bpf),
    SCMP_SYS(perf_event_open),
    SCMP_SYS(userfaultfd),
    SCMP_SYS(io_uring_setup),
    SCMP_SYS(io_uring_enter),
    SCMP_SYS(io_uring_register),
    SCMP_SYS(keyctl),
    SCMP_SYS(add_key),
    SCMP_SYS(request_key),
    SCMP_SYS(init_module),
    SCMP_SYS(finit_module),
    SCMP_SYS(delete_module),
    SCMP_SYS(kexec_load),
    SCMP_SYS(kexec_file_load),
    SCMP_SYS(reboot),
    SCMP_SYS(acct),
    SCMP_SYS(settimeofday),
    SCMP_SYS(clock_settime),
    SCMP_SYS(adjtimex),
    SCMP_SYS(clock_adjtime),
    SCMP_SYS(syslog),
    SCMP_SYS(iopl),
    SCMP_SYS(ioperm),
    SCMP_SYS(modify_ldt),
    SCMP_SYS(personality),
    SCMP_SYS(vhangup),
    SCMP_SYS(shmget),
    SCMP_SYS(shmat),
    SCMP_SYS(semget),
    SCMP_SYS(msgget),
    SCMP_SYS(mq_open),
};

/* Refused when one argument compares as said. */
struct conditional {
    int call;
    int error;
    struct scmp_arg_cmp when;
};

#define IS(arg, mask, value) SCMP_CMP64(arg, SCMP_CMP_MASKED_EQ, (mask), (value))
#define NOT(arg, value) SCMP_CMP64(arg, SCMP_CMP_NE, (value))

static int add_conditional(scmp_filter_ctx filter, int node_fd)
{
    uint64_t self = (uint64_t)getpid(), node = (uint64_t)node_fd;
    struct conditional list[] = {
        {SCMP_SYS(execveat), EPERM, NOT(0, node)},
        {SCMP_SYS(execveat), EPERM, NOT(4, AT_EMPTY_PATH)},
        {SCMP_SYS(clone), EPERM, IS(0, CLONE_THREAD, 0)}, /* threads, not processes */
        {SCMP_SYS(clone), EPERM, IS(0, CLONE_NEWUSER, CLONE_NEWUSER)},
        {SCMP_SYS(kill), EPERM, NOT(0, self)},
        {SCMP_SYS(tgkill), EPERM, NOT(0, self)},
        {SCMP_SYS(prlimit64), EPERM, NOT(0, 0)},
        {SCMP_SYS(socket), EAFNOSUPPORT, NOT(0, AF_UNIX)},
        {SCMP_SYS(socketpair), EAFNOSUPPORT, NOT(0, AF_UNIX)},
        {SCMP_SYS(open), EROFS, IS(1, O_ACCMODE, O_WRONLY)},
        {SCMP_SYS(open), EROFS, IS(1, O_ACCMODE, O_RDWR)},
        {SCMP_SYS(open), EROFS, IS(1, O_CREAT, O_CREAT)},
        {SCMP_SYS(openat), EROFS, IS(2, O_ACCMODE, O_WRONLY)},
        {SCMP_SYS(openat), EROFS, IS(2, O_ACCMODE, O_RDWR)},
        {SCMP_SYS(openat), EROFS, IS(2, O_CREAT, O_CREAT)},
    };
    int r = 0;
    for (size_t i = 0; i < sizeof list / sizeof *list && !r; i++)
        r = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO((uint16_t)list[i].error), list[i].call, 1,
                                   &list[i].when);
    return r;
}

static int add_rules(scmp_filter_ctx filter, int node_fd)
{
    int r = 0;
    for (size_t i = 0; i < sizeof refused / sizeof *refused && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), refused[i], 0);
    /* Their arguments lie in memory, out of a filter's reach: callers fall back to the older forms.
     */
    static const int too_new[] = {SCMP_SYS(clone3), SCMP_SYS(openat2)};
    for (size_t i = 0; i < sizeof too_new / sizeof *too_new && !r; i++)
        r = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), too_new[i], 0);
    return r ? r : add_conditional(filter, node_fd);
}

err confine_syscalls(int node_fd)
{
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    if (!filter)
        return fail(E_UNAVAILABLE, "this kernel has no system call filters (seccomp)");
    int r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0);
    if (!r)
        r = add_rules(filter, node_fd);
    if (!r)
        r = seccomp_load(filter);
    seccomp_release(filter);
    if (r) {
        errno = -r;
        return fail_errno("installing the system call filter");
    }
    return 0;
}
