/* src/sandbox/linux: drives the provider as the parent's makers would, and looks at the sandbox
   from inside (through pi-hands) and from outside. */
#include "sandbox_support.h"

/* ---- inside ---- */

static void commands_run_as_root_of_nobody(void **state)
{
    (void)state;
    struct box b = box_of("sess_run", "tenant_a", 0);
    boot(&b);
    assert_int_equal(status_of(&b).state, SANDBOX_RUNNING);
    expect(&b, "echo hello", "hello\n");
    expect(&b, "id -u; id -g; echo $HOME; pwd; hostname", "0\n0\n/root\n/workspace\nsandbox\n");
    expect(&b,
           "touch /root/a /workspace/a /mnt/session/outputs/a /mnt/session/tool-output/a /tmp/a"
           " && echo ok",
           "ok\n");
    expect(&b,
           "/.pi/rg --version | head -c 7; test -x /.pi/hands && echo; /.pi/hands --version "
           ">/dev/null && echo ok",
           "ripgrep\nok\n");
    expect(&b, "umask; stat -c %a / /workspace /etc /etc/passwd /tmp /mnt/session/outputs",
           "0022\n755\n755\n755\n644\n1777\n755\n");
    expect(&b, "grep -E '^Sig(Blk|Ign):' /proc/self/status | tr -d '\t0'", "SigBlk:\nSigIgn:\n");
    refuse(&b, "touch /.pi/rg", "Read-only file system");
    refuse(&b, "touch /usr/bin/new", "Read-only file system");
    expect(&b, "mkdir /home/x /etc/x && echo x >/etc/hosts && echo ok", "ok\n");
    struct stat st;
    char path[256];
    snprintf(path, sizeof path, "%s/fs/%s/workspace/a", b.dir, plain_root ? "plain" : "upper");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, privileged ? b.place.uid_base : geteuid());
    /* What sandboxes share stays ours, whoever they take it for. */
    expect(&b, "stat -c %u:%g / /etc /etc/passwd /.pi/rg", "0:0\n0:0\n0:0\n0:0\n");
    snprintf(path, sizeof path, plain_root ? "true" : "[ -z \"$(find %s/host -not -user %u)\" ]",
             images, (unsigned)geteuid());
    assert_int_equal(system(path), 0);
    /* Nobody else's, and not in anybody's way either: all folders above are closed to others. */
    assert_int_equal(stat(b.socket, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(stat(data, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    must(DESTROY, &b);
}

/* The image's files, to compare with: read-only, and nothing above them. */
static bool is_image_alone(int fds, const char *name)
{
    struct statvfs fs;
    struct stat root, above;
    AUTO_FD image = openat(fds, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return image >= 0 && fstatvfs(image, &fs) == 0 && (fs.f_flag & ST_RDONLY) != 0 &&
           fstat(image, &root) == 0 && fstatat(image, "..", &above, 0) == 0 &&
           root.st_ino == above.st_ino && root.st_dev == above.st_dev &&
           faccessat(image, ".pi/rg", F_OK, 0) == 0;
}

/* Seen from outside: pi-hands shows its descriptors and its environment to nobody inside. */
static void assert_holds_nothing_of_ours(pid_t pid)
{
    static const char *const fine[] = {"socket:", "pipe:", "anon_inode:", "/dev/null"};
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *fds = opendir(path);
    assert_non_null(fds);
    for (const struct dirent *fd; (fd = readdir(fds));) {
        char to[256] = {0};
        bool known = readlinkat(dirfd(fds), fd->d_name, to, sizeof to - 1) < 0; /* . and .. */
        for (size_t i = 0; i < sizeof fine / sizeof *fine; i++)
            known |= strncmp(to, fine[i], strlen(fine[i])) == 0;
        if (!known && !(strcmp(to, "/") == 0 && is_image_alone(dirfd(fds), fd->d_name)))
            fail_msg("descriptor %s of pi-hands is %s", fd->d_name, to);
    }
    closedir(fds);
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    AUTO_BUF environment = {0};
    assert_int_equal(fd_read_file(path, 1 << 16, &environment), 0);
    assert_null(memmem(environment.p, environment.n, "leaked", 6));
}

static void host_stays_out_of_sight(void **state)
{
    (void)state;
    setenv("PM_TEST_LEAK", "leaked", 1);
    struct box b = box_of("sess_sight", "tenant_a", 1);
    boot(&b);
    expect(&b, "grep -c . /etc/passwd", "3\n");
    expect(&b,
           "ls -A /home /opt /srv /var/lib | grep -v : | grep .; ls /etc/shadow 2>/dev/null; "
           "true",
           "");
    struct ran r =
        run(&b, "cat /proc/mounts /proc/self/mountinfo /proc/self/environ /proc/self/cgroup");
    assert_int_equal(r.code, 0);
    assert_null(memmem(r.out.p, r.out.n, data, strlen(data)));
    if (!plain_root) /* a bind mount shows its path within the disk, in mountinfo only */
        assert_null(memmem(r.out.p, r.out.n, "sandboxes", 9));
    assert_null(memmem(r.out.p, r.out.n, "runtime", 7));
    assert_null(memmem(r.out.p, r.out.n, "leaked", 6));
    assert_null(memmem(r.out.p, r.out.n, "pi-managed", 10));
    buf_done(&r.out);
    expect(&b, "tr '\\0' ' ' </proc/1/cmdline", "pi-hands 3 --image 4 ");
    refuse(&b, "cat /proc/1/environ", "Permission denied");
    refuse(&b, "readlink -v /proc/1/fd/3", "Permission denied");
    if (privileged)
        assert_holds_nothing_of_ours(init_of(&b).pid);
    expect(&b,
           "for p in /proc/[0-9]*; do echo $p; done | wc -l | xargs -I% bash -c "
           "'[ % -lt 8 ] && echo few'",
           "few\n");
    refuse(&b, "cat /proc/kcore | head -c 4 | grep .", "");
    must(DESTROY, &b);
}

static void mounts_below_usr_are_there(void **state)
{
    (void)state;
    struct box b = box_of("sess_mounts", "tenant_a", 34);
    boot(&b);
    expect(&b, "/usr/local/bin/more && echo runs", "runs\n");
    refuse(&b, "touch /usr/local/bin/new", "Read-only file system");
    refuse(&b, "umount /usr/local", "umount:");
    must(DESTROY, &b);
}

static void a_socket_path_that_is_too_long_is_told(void **state)
{
    (void)state;
    struct box b = box_of("sess_long", "tenant_a", 33);
    must(CREATE, &b);
    snprintf(b.socket, sizeof b.socket, "%.100s/%0100d", b.dir, 7);
    struct outcome o = make(START, &b, 0);
    assert_int_equal(o.e, E_INVALID);
    assert_non_null(strstr(o.text, "too long (107 bytes at most)"));
    assert_int_equal(status_of(&b).state, SANDBOX_STOPPED);
    snprintf(b.socket, sizeof b.socket, "%s/agent.sock", b.dir);
    must(START, &b);
    must(DESTROY, &b);
}

static void privilege_cannot_be_had(void **state)
{
    (void)state;
    struct box b = box_of("sess_priv", "tenant_a", 2);
    boot(&b);
    refuse(&b, "mount -t tmpfs none /mnt", "ermi");
    refuse(&b, "unshare -U true", "Operation not permitted");
    refuse(&b, "unshare -m true", "Operation not permitted");
    refuse(&b, "umount /tmp", "umount:");
    refuse(&b, "mknod /tmp/sda b 8 0", "Operation not permitted");
    refuse(&b, "hostname other", "");
    refuse(&b, "date -s 2020-01-01", "Operation not permitted");
    refuse(&b, "echo 1 >/proc/sys/kernel/core_pattern", "Read-only file system");
    refuse(&b, "echo c >/proc/sysrq-trigger; false", "");
    refuse(&b, "chmod 777 /sys/kernel", "");
    expect(&b, "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'",
           "NoNewPrivs:1\nSeccomp:2\n");
    /* CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP NET_BIND_SERVICE SYS_CHROOT */
    expect(&b, "grep -E '^Cap(Eff|Bnd):' /proc/self/status | tr -d '\\t'",
           "CapEff:00000000000405fb\nCapBnd:00000000000405fb\n");
    must(DESTROY, &b);
}

static void nothing_leads_to_a_network(void **state)
{
    (void)state;
    struct box b = box_of("sess_net", "tenant_a", 3);
    boot(&b);
    expect(&b, "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n");
    refuse(&b, "exec 3<>/dev/tcp/192.0.2.1/80", "unreachable");
    refuse(&b, "exec 3<>/dev/udp/192.0.2.1/53", "unreachable");
    refuse(&b, "exec 3<>/dev/tcp/127.0.0.1/22", "refused");
    must(DESTROY, &b);
}

static void other_users_are_there_where_there_are_ids(void **state)
{
    (void)state;
    struct box b = box_of("sess_users", "tenant_a", 32);
    boot(&b);
    if (!has_range) {
        refuse(&b, "touch f; chown 1000:1000 f", "Invalid argument");
    } else {
        expect(
            &b,
            "touch f && chown 1000:42 f && mkdir -m 700 d && chown 65534 d && stat -c %u:%g f d; "
            "setpriv --reuid 1000 --regid 42 --clear-groups sh -c 'id -u; echo mine >f; ls d' "
            "2>&1; true",
            "1000:42\n65534:0\n1000\nls: cannot open directory 'd': Permission denied\n");
        expect(&b, "setpriv --reuid 65534 --clear-groups touch d/f; id -G; ls d", "0\nf\n");
    }
    must(STOP, &b);
    must(START, &b);
    if (has_range)
        expect(&b, "cat f; stat -c %u d/f", "mine\n65534\n");
    assert_true(status_of(&b).disk_bytes > 0);
    must(DESTROY, &b);
    assert_no_trace(&b);
}

/* ---- life ---- */

static void verbs_may_be_repeated(void **state)
{
    (void)state;
    struct box b = box_of("sess_again", "tenant_a", 4);
    assert_int_equal(make(START, &b, 0).e, E_NOT_FOUND);
    assert_int_equal(make(STOP, &b, 0).e, 0);
    assert_int_equal(make(DESTROY, &b, 0).e, 0);
    assert_int_equal(status_of(&b).state, SANDBOX_NONE);
    must(CREATE, &b);
    must(CREATE, &b);
    struct box other = b;
    other.spec.memory_mib = 1024;
    assert_int_equal(make(CREATE, &other, 0).e, E_CONFLICT);
    assert_int_equal(make(START, &other, 0).e, E_CONFLICT);
    assert_int_equal(status_of(&b).state, SANDBOX_STOPPED);
    must(START, &b);
    pid_t first = init_of(&b).pid;
    must(START, &b);
    assert_int_equal(init_of(&b).pid, first);
    must(STOP, &b);
    must(STOP, &b);
    assert_int_equal(status_of(&b).state, SANDBOX_STOPPED);
    must(DESTROY, &b);
    must(DESTROY, &b);
}

static void files_survive_a_stop_and_processes_do_not(void **state)
{
    (void)state;
    struct box b = box_of("sess_keep", "tenant_a", 5);
    boot(&b);
    expect(&b,
           "echo kept >f; chmod 4751 f; touch -d @1000000000 f; ln -s f l; mkdir -p /etc/d; "
           "rm /etc/shells; (setsid sleep 1000 >/dev/null 2>&1 &) ; echo ok",
           "ok\n");
    struct state_init init = init_of(&b);
    AUTO_FD pidfd = init_open(&init);
    assert_true(pidfd >= 0);
    assert_int_equal(make(STOP, &b, 2000).e, 0);
    assert_true(init_wait_end(pidfd, 0));
    char work[256];
    snprintf(work, sizeof work, "%s/fs/work", b.dir); /* rm -r of a plain user would trip over it */
    assert_int_equal(access(work, F_OK), -1);
    must(START, &b);
    expect(&b,
           "cat l; stat -c '%a %Y %U' f; ls -d /etc/d; ls /etc/shells 2>/dev/null; "
           "grep -l sleep /proc/[0-9]*/comm; true",
           "kept\n4751 1000000000 root\n/etc/d\n");
    must(DESTROY, &b);
}

static void changes_are_told_against_the_image(void **state)
{
    (void)state;
    struct box b = box_of("sess_changes", "tenant_a", 17);
    AUTO_BUF none = {0}, some = {0};
    boot(&b);
    changes_of(b.socket, &none);
    assert_string_equal(none.p ? none.p : "", "");
    expect(&b,
           "echo new >f; rm /etc/shells; rmdir /srv; chmod 600 /etc/hostname; touch /etc/passwd; "
           "cp -p /etc/group g && cat g >/etc/group; echo x >>/etc/hosts; echo y >/tmp/z; echo ok",
           "ok\n");
    must(STOP, &b);
    must(START, &b);
    changes_of(b.socket, &some);
    assert_string_equal(some.p, "Mf 600 etc/hostname\nMf 644 etc/hosts\nDf 644 etc/shells\n"
                                "Dd 755 srv\nAf 644 workspace/f\nAf 644 workspace/g\n");
    must(DESTROY, &b);
}

static void a_killed_init_shows_as_crashed(void **state)
{
    (void)state;
    struct box b = box_of("sess_crash", "tenant_a", 6);
    boot(&b);
    expect(&b, "echo kept >f; echo ok", "ok\n");
    struct state_init init = init_of(&b);
    AUTO_FD pidfd = init_open(&init);
    assert_int_equal(kill(init.pid, SIGKILL), 0);
    assert_true(init_wait_end(pidfd, 5000));
    /* The zombie is ours (subreaper) and not reaped yet: it must count as dead all the same. */
    assert_int_equal(kill(init.pid, 0), 0);
    struct sandbox_status s = status_of(&b);
    assert_int_equal(s.state, SANDBOX_CRASHED);
    assert_non_null(strstr(s.reason, "died"));
    must(START, &b);
    expect(&b, "cat f", "kept\n");
    assert_int_equal(status_of(&b).state, SANDBOX_RUNNING);
    must(DESTROY, &b);
}

/* What was killed may take a while to die; until then it is there, and may even answer. */
static void one_that_is_dying_is_booted_again_at_once(void **state)
{
    (void)state;
    struct box b = box_of("sess_dying", "tenant_a", 18);
    boot(&b);
    for (int i = 0; i < 20; i++) {
        expect(&b, "for i in {1..20}; do sleep 1000 & done; echo ok", "ok\n");
        struct state_init killed = init_of(&b);
        assert_int_equal(kill(killed.pid, SIGKILL), 0);
        must(START, &b);
        assert_int_not_equal(init_of(&b).pid, killed.pid);
        expect(&b, "echo alive", "alive\n");
    }
    must(DESTROY, &b);
}

static void one_that_cannot_be_reached_is_booted_again(void **state)
{
    (void)state;
    struct box b = box_of("sess_lost", "tenant_a", 17);
    boot(&b);
    expect(&b, "echo kept >f; echo ok", "ok\n");
    struct state_init init = init_of(&b);
    AUTO_FD pidfd = init_open(&init);
    assert_int_equal(unlink(b.socket), 0);
    must(START, &b);
    assert_true(init_wait_end(pidfd, 0));
    expect(&b, "cat f", "kept\n");
    must(DESTROY, &b);
}

static void another_process_with_its_pid_is_not_it(void **state)
{
    (void)state;
    struct box b = box_of("sess_reuse", "tenant_a", 7);
    must(CREATE, &b);
    struct state_run run_of_old = {.started_at_ms = 1};
    assert_int_equal(init_identify(getpid(), &run_of_old.init), 0);
    run_of_old.init.start_ticks--;
    assert_int_equal(state_write_run(b.dir, &run_of_old), 0);
    assert_int_equal(status_of(&b).state, SANDBOX_CRASHED);
    must(STOP, &b); /* must not signal us */
    run_of_old.init.start_ticks++;
    snprintf(run_of_old.init.boot_id, sizeof run_of_old.init.boot_id, "another");
    assert_int_equal(state_write_run(b.dir, &run_of_old), 0);
    struct sandbox_status s = status_of(&b);
    assert_int_equal(s.state, SANDBOX_CRASHED);
    assert_non_null(strstr(s.reason, "restarted"));
    must(DESTROY, &b);
}

static void destroy_leaves_no_trace(void **state)
{
    (void)state;
    struct box b = box_of("sess_trace", "tenant_a", 8);
    b.spec.cpu_milli = 500;
    boot(&b);
    if (privileged && status_of(&b).limits_enforced)
        assert_true(count_cgroups(b.spec.id) > 0);
    /* Deeper than a path can say, and deeper than the remover likes to descend. */
    expect(&b,
           "mkdir -p secret && touch secret/f && chmod 0 secret; n=$(printf 'd%.0s' {1..99}); "
           "for i in {1..150}; do mkdir $n && cd $n || exit; done 2>/dev/null; echo ok",
           "ok\n");
    must(DESTROY, &b);
    assert_no_trace(&b);
}

/* ---- neighbours and failures ---- */

static void tenants_see_nothing_of_each_other(void **state)
{
    (void)state;
    struct box a = box_of("sess_left", "tenant_a", 11), b = box_of("sess_right", "tenant_b", 12);
    boot(&a);
    boot(&b);
    expect(&a,
           "echo mine >secret; (exec -a marker-left setsid sleep 1000 >/dev/null 2>&1 &); echo ok",
           "ok\n");
    expect(&b,
           "ls -A /workspace; ls -A /tmp; "
           "! cat /proc/[0-9]*/cmdline 2>/dev/null | grep -a marker-le[f]t",
           "");
    must(DESTROY, &b);
    expect(&a, "cat secret", "mine\n");
    must(DESTROY, &a);
    assert_no_trace(&a);
    assert_no_trace(&b);
}

static void a_failed_start_is_torn_down_and_says_why(void **state)
{
    (void)state;
    struct box b = box_of("sess_fail", "tenant_a", 13);
    must(CREATE, &b);
    b.place.runtime = "/nonexistent";
    struct outcome o = make(START, &b, 0);
    assert_int_equal(o.e, E_UNAVAILABLE);
    assert_non_null(strstr(o.text, "/nonexistent/rg"));
    assert_int_equal(status_of(&b).state, SANDBOX_STOPPED);
    b.place.runtime = runtime;
    char work[256]; /* a file where the overlay needs a folder, and files in the upper layer */
    snprintf(work, sizeof work, "%s/fs", b.dir);
    assert_int_equal(mkdir(work, 0700), 0);
    snprintf(work, sizeof work, "%s/fs/upper", b.dir);
    assert_int_equal(mkdir(work, 0755), 0);
    snprintf(work, sizeof work, "%s/fs/upper/file", b.dir);
    assert_int_equal(mkdir(work, 0755), 0);
    snprintf(work, sizeof work, "%s/fs/lower", b.dir);
    assert_int_equal(fd_write_file_atomic(work, STR("x"), 0600), 0);
    o = make(START, &b, 0);
    assert_int_not_equal(o.e, 0);
    assert_true(strlen(o.text) > 10);
    assert_int_equal(status_of(&b).state, SANDBOX_STOPPED);
    assert_int_equal(access(b.socket, F_OK), -1);
    assert_int_equal(count_cgroups(b.spec.id), 0);
    unlink(work);
    snprintf(work, sizeof work, "%s/fs/upper/file", b.dir);
    assert_int_equal(rmdir(work), 0);
    must(START, &b);
    must(DESTROY, &b);
    assert_no_trace(&b);
}

static int count_entries(const char *path)
{
    int n = 0;
    DIR *d = opendir(path);
    for (const struct dirent *entry; d && (entry = readdir(d));)
        n += entry->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static void old_skeletons_go_when_nobody_uses_them(void **state)
{
    (void)state;
    struct box a = box_of("sess_old", "tenant_a", 15), b = box_of("sess_new", "tenant_a", 16);
    /* A DATA of its own: marks of others would count. */
    char store[128], rg[128], own[128], own_images[128];
    snprintf(own, sizeof own, "%s/own/sandboxes", data);
    snprintf(store, sizeof store, "%s/own", data);
    assert_int_equal(mkdir(store, 0755), 0);
    assert_int_equal(mkdir(own, 0755), 0);
    snprintf(own_images, sizeof own_images, "%s/own/images", data);
    a.place.images = b.place.images = own_images;
    struct box *const boxes[] = {&a, &b};
    for (size_t i = 0; i < 2; i++)
        place_box(boxes[i], own, boxes[i]->spec.id);
    snprintf(store, sizeof store, "%s/own/images/host", data);
    snprintf(rg, sizeof rg, "%s/rg", runtime);
    boot(&a);
    assert_int_equal(count_entries(store), 1);
    const struct timespec newer[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000001}};
    assert_int_equal(utimensat(AT_FDCWD, rg, newer, 0), 0); /* as an upgrade would */
    boot(&b);
    assert_int_equal(count_entries(store), 2);
    expect(&a, "/.pi/rg --version | head -c 7", "ripgrep");
    must(STOP, &a);
    must(STOP, &b);
    const struct timespec newest[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000000002}};
    assert_int_equal(utimensat(AT_FDCWD, rg, newest, 0), 0);
    must(START, &a);
    assert_int_equal(count_entries(store), 1);
    must(DESTROY, &a);
    must(DESTROY, &b);
}

static void requests_it_cannot_fulfil_are_refused(void **state)
{
    (void)state;
    struct box b = box_of("sess_refuse", "tenant_a", 14);
    snprintf(b.spec.image, sizeof b.spec.image, "debian:12");
    struct outcome o = make(CREATE, &b, 0);
    assert_int_equal(o.e, E_NOT_FOUND);
    assert_non_null(strstr(o.text, "image import debian:12 SOURCE"));
    snprintf(b.spec.image, sizeof b.spec.image, "dir:/");
    assert_int_equal(make(CREATE, &b, 0).e, E_FORBIDDEN);
    b = box_of("sess_refuse", "tenant_a", 14);
    b.spec.disk_mib = 15;
    assert_int_equal(make(CREATE, &b, 0).e, E_INVALID);
    assert_int_equal(status_of(&b).state, SANDBOX_NONE);
}

static void the_probe_and_auto_say_usable(void **state)
{
    (void)state;
    struct sandbox_caps caps;
    sandbox_provider_named("linux")->probe(&caps);
    if (!caps.usable)
        fail_msg("%s", caps.reason);
    assert_int_equal(caps.uid_range, has_range);
    assert_false(caps.own_kernel);
    assert_int_equal(caps.limit_disk, privileged);
    if (!caps.limit_disk)
        assert_non_null(strstr(caps.reason, "no limit for disk: run as root"));
    const struct sandbox_provider *p = NULL;
    assert_int_equal(sandbox_provider_choose("auto", &p), 0);
    assert_string_equal(p->name, "linux");
    assert_int_equal(sandbox_provider_choose("nosuch", &p), E_INVALID);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_probe_and_auto_say_usable),
        cmocka_unit_test(commands_run_as_root_of_nobody),
        cmocka_unit_test(host_stays_out_of_sight),
        cmocka_unit_test(a_socket_path_that_is_too_long_is_told),
        cmocka_unit_test(privilege_cannot_be_had),
        cmocka_unit_test(nothing_leads_to_a_network),
        cmocka_unit_test(other_users_are_there_where_there_are_ids),
        cmocka_unit_test(verbs_may_be_repeated),
        cmocka_unit_test(files_survive_a_stop_and_processes_do_not),
        cmocka_unit_test(changes_are_told_against_the_image),
        cmocka_unit_test(a_killed_init_shows_as_crashed),
        cmocka_unit_test(one_that_is_dying_is_booted_again_at_once),
        cmocka_unit_test(one_that_cannot_be_reached_is_booted_again),
        cmocka_unit_test(another_process_with_its_pid_is_not_it),
        cmocka_unit_test(destroy_leaves_no_trace),
        cmocka_unit_test(tenants_see_nothing_of_each_other),
        cmocka_unit_test(a_failed_start_is_torn_down_and_says_why),
        cmocka_unit_test(old_skeletons_go_when_nobody_uses_them),
        cmocka_unit_test(requests_it_cannot_fulfil_are_refused),
    };
    static const struct CMUnitTest of_v1[] = {
        cmocka_unit_test(destroy_leaves_no_trace),
    };
    static const struct CMUnitTest of_files[] = {
        cmocka_unit_test(the_probe_and_auto_say_usable),
        cmocka_unit_test(commands_run_as_root_of_nobody),
        cmocka_unit_test(host_stays_out_of_sight),
        cmocka_unit_test(other_users_are_there_where_there_are_ids),
        cmocka_unit_test(files_survive_a_stop_and_processes_do_not),
        cmocka_unit_test(changes_are_told_against_the_image),
        cmocka_unit_test(destroy_leaves_no_trace),
        cmocka_unit_test(a_failed_start_is_torn_down_and_says_why),
        cmocka_unit_test(old_skeletons_go_when_nobody_uses_them),
    };
    static const struct CMUnitTest few[] = {
        cmocka_unit_test(mounts_below_usr_are_there),
        cmocka_unit_test(files_survive_a_stop_and_processes_do_not),
    };
    return run_suite(&(struct suite){.name = "sandbox_linux",
                                     .tests = tests,
                                     .of_v1 = of_v1,
                                     .few = few,
                                     .of_files = of_files,
                                     .of_files_count = sizeof of_files / sizeof *of_files,
                                     .few_count = sizeof few / sizeof *few,
                                     .count = sizeof tests / sizeof *tests,
                                     .of_v1_count = sizeof of_v1 / sizeof *of_v1});
}
