/* src/sandbox/linux: limits of memory, processes and disk, and what a sandbox uses of them. */
#include "sandbox_support.h"

static bool limits_enforced(struct box *b)
{
    struct sandbox_status s = status_of(b);
    if (!s.limits_enforced) {
        assert_true(strlen(s.reason) > 0);
        print_message("[   NOTE   ] not checked: %s\n", s.reason);
    }
    return s.limits_enforced;
}

static void memory_limit_kills_the_hog_alone(void **state)
{
    (void)state;
    struct box b = box_of("sess_memory", "tenant_a", 9);
    b.spec.memory_mib = 64;
    boot(&b);
    if (limits_enforced(&b)) {
        pid_t before = init_of(&b).pid;
        refuse(&b, "head -c 300m /dev/zero | tail; exit ${PIPESTATUS[1]}", "");
        expect(&b, "echo alive", "alive\n");
        assert_int_equal(init_of(&b).pid, before);
        assert_true(status_of(&b).memory_bytes > 0);
    }
    must(DESTROY, &b);
}

/* By a control group, or of a plain user by the kernel's count of each sandbox. */
static void process_limit_holds_and_leaves_room_for_pi_hands(void **state)
{
    (void)state;
    struct sandbox_caps caps;
    sandbox_provider_named("linux")->probe(&caps);
    struct box b = box_of("sess_pids", "tenant_a", 10);
    b.spec.pids = 32;
    b.place.allow_unenforced = !caps.limit_pids;
    boot(&b);
    if (caps.limit_pids) {
        refuse(&b, "exec sh -c 'for i in $(seq 100); do sleep 600 & done'", "fork");
        for (int i = 0; i < 3; i++)
            expect(&b, "echo alive", "alive\n");
        expect(&b, "ulimit -u", "24\n");
        refuse(&b, "ulimit -Hu 33", "not permitted");
        if (groups_have(&b, "pids.current"))
            assert_in_range(status_of(&b).pids, 16, 32);
        assert_int_equal(hands_hello(b.socket, 5000), 0);
        expect(&b, "exec pkill -9 sleep", "");
        expect(&b, "exec 2>/dev/null; until (echo mended); do :; done", "mended\n");
        must(STOP, &b);
        must(START, &b);
        expect(&b, "echo alive", "alive\n");
    } else {
        print_message("[   NOTE   ] not checked: %s\n", caps.reason);
    }
    must(DESTROY, &b);
}

static void what_it_uses_is_told(void **state)
{
    (void)state;
    struct box b = box_of("sess_usage", "tenant_a", 30);
    boot(&b);
    uint64_t disk_before = status_of(&b).disk_bytes;
    assert_in_range(disk_before, 1, plain_root ? 64 << 20 : 1 << 20);
    expect(&b,
           "head -c 5m /dev/urandom >f; ln f g; mkdir d; chmod 0 d; sync; "
           "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo ok",
           "ok\n");
    struct sandbox_status s = status_of(&b);
    assert_in_range(s.disk_bytes, disk_before + (5 << 20), disk_before + (6 << 20));
    if (groups_have(&b, "cpuacct.usage") || groups_have(&b, "cgroup.procs"))
        assert_in_range(s.cpu_us, 10000, 600000000);
    if (groups_have(&b, "pids.current"))
        assert_true(s.pids > 0);
    must(STOP, &b);
    s = status_of(&b);
    assert_in_range(s.disk_bytes, disk_before + (5 << 20), disk_before + (6 << 20));
    assert_int_equal(s.cpu_us, 0);
    must(DESTROY, &b);
    assert_int_equal(status_of(&b).disk_bytes, 0);
}

static bool loop_device_has(ino_t inode)
{
    for (int i = 0; i < 256; i++) {
        char device[32];
        struct loop_info64 info;
        snprintf(device, sizeof device, "/dev/loop%d", i);
        AUTO_FD loop = open(device, O_RDONLY | O_CLOEXEC);
        if (loop >= 0 && ioctl(loop, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == inode)
            return true;
    }
    return false;
}

static void disk_limit_holds_and_keeps_files(void **state)
{
    (void)state;
    char image[256];
    struct box b = box_of("sess_disk", "tenant_a", 31);
    b.spec.disk_mib = 32;
    if (!privileged) {
        b.place.allow_unenforced = false;
        must(CREATE, &b);
        struct outcome o = make(START, &b, 0);
        assert_int_equal(o.e, E_INVALID);
        assert_non_null(strstr(o.text, "disk space cannot be limited here: it needs root"));
        b.place.allow_unenforced = true;
        must(START, &b);
        assert_false(status_of(&b).limits_enforced);
        assert_non_null(strstr(status_of(&b).reason, "disk"));
        must(DESTROY, &b);
        return;
    }
    boot(&b);
    struct stat st;
    snprintf(image, sizeof image, "%s/disk.img", b.dir);
    assert_int_equal(stat(image, &st), 0);
    assert_true(loop_device_has(st.st_ino));
    assert_true(status_of(&b).limits_enforced);
    struct ran r = run(&b, "cat /proc/mounts /proc/self/mountinfo");
    assert_null(memmem(r.out.p, r.out.n, "sandboxes", 9));
    assert_null(memmem(r.out.p, r.out.n, "disk.img", 8));
    buf_done(&r.out);
    expect(&b, "echo kept >f; chmod 4751 f; touch -d @1000000000 f; rm /etc/shells; echo ok",
           "ok\n");
    refuse(&b, "head -c 64m /dev/zero >/root/full", "No space left on device");
    expect(&b, "echo alive && rm /root/full && head -c 9m /dev/zero >/mnt/full && echo fits",
           "alive\nfits\n");
    assert_in_range(status_of(&b).disk_bytes, 9 << 20, 32 << 20);
    must(STOP, &b);
    assert_false(loop_device_has(st.st_ino));
    assert_in_range(status_of(&b).disk_bytes, 9 << 20, 32 << 20);
    must(START, &b);
    expect(&b, "cat f; stat -c '%a %Y %U' f /mnt/full | head -1; ls /etc/shells 2>/dev/null; true",
           "kept\n4751 1000000000 root\n");
    struct state_init init = init_of(&b); /* and after a crash */
    AUTO_FD pidfd = init_open(&init);
    assert_int_equal(kill(init.pid, SIGKILL), 0);
    assert_true(init_wait_end(pidfd, 5000));
    must(START, &b);
    expect(&b, "cat f; rm /mnt/full; sync; echo ok", "kept\nok\n");
    refuse(&b, "for i in $(seq 20000); do : >$i; done", "No space left on device");
    must(DESTROY, &b);
    assert_false(loop_device_has(st.st_ino));
    assert_no_trace(&b);
}

/* Makers that start at the same time, not one after the other. */
static int start_at_once(struct box *boxes, size_t n)
{
    int started = 0, status;
    pid_t makers[16];
    assert_in_range(n, 1, 16);
    fflush(NULL);
    for (size_t i = 0; i < n; i++) {
        makers[i] = fork();
        if (makers[i] == 0) {
            be_a_daemon();
            err e = run_verb(START, &boxes[i], 0, NULL);
            _exit(e == 0 ? 0 : e == E_QUOTA && strcmp(err_code(), LEDGER_NO_ROOM) == 0 ? 1 : 2);
        }
    }
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(waitpid(makers[i], &status, 0), makers[i]);
        if (!WIFEXITED(status) || WEXITSTATUS(status) > 1)
            fail_msg("a start ended with %d", status);
        started += WEXITSTATUS(status) == 0;
    }
    return started;
}

static void as_many_start_as_memory_was_promised_for(void **state)
{
    (void)state;
    enum {
        ASKING = 6,
        FITTING = 3
    };
    static struct box boxes[ASKING];
    for (unsigned i = 0; i < ASKING; i++) {
        char id[16];
        snprintf(id, sizeof id, "sess_many%u", i);
        boxes[i] = box_of(id, "tenant_a", 20 + i);
        boxes[i].spec.memory_mib = 64;
        boxes[i].place.memory_mib = FITTING * 64 + 63;
        must(CREATE, &boxes[i]);
    }
    assert_int_equal(start_at_once(boxes, ASKING), FITTING);
    assert_int_equal(start_at_once(boxes, ASKING), FITTING); /* those that run stay */
    size_t running = 0;
    while (status_of(&boxes[running]).state != SANDBOX_RUNNING)
        running++;
    must(STOP, &boxes[running]);
    assert_int_equal(start_at_once(boxes, ASKING), FITTING);
    /* One that died unnoticed makes room too. */
    for (running = 0; status_of(&boxes[running]).state != SANDBOX_RUNNING;)
        running++;
    struct state_init init = init_of(&boxes[running]);
    AUTO_FD pidfd = init_open(&init);
    assert_int_equal(kill(init.pid, SIGKILL), 0);
    assert_true(init_wait_end(pidfd, 5000));
    while (waitpid(init.pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    must(DESTROY, &boxes[running]);
    boxes[running] = boxes[ASKING - 1];
    assert_int_equal(start_at_once(boxes, ASKING - 1), FITTING);
    for (unsigned i = 0; i < ASKING; i++)
        must(DESTROY, &boxes[i]);
    char ledger[160];
    snprintf(ledger, sizeof ledger, "%s/.memory", boxes[0].place.sandboxes);
    assert_int_equal(access(ledger, F_OK), -1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_limit_kills_the_hog_alone),
        cmocka_unit_test(process_limit_holds_and_leaves_room_for_pi_hands),
        cmocka_unit_test(what_it_uses_is_told),
        cmocka_unit_test(disk_limit_holds_and_keeps_files),
        cmocka_unit_test(as_many_start_as_memory_was_promised_for),
    };
    static const struct CMUnitTest of_v1[] = {
        cmocka_unit_test(memory_limit_kills_the_hog_alone),
        cmocka_unit_test(process_limit_holds_and_leaves_room_for_pi_hands),
        cmocka_unit_test(what_it_uses_is_told),
    };
    static const struct CMUnitTest of_files[] = {
        cmocka_unit_test(process_limit_holds_and_leaves_room_for_pi_hands),
        cmocka_unit_test(what_it_uses_is_told),
        cmocka_unit_test(disk_limit_holds_and_keeps_files),
    };
    return run_suite(&(struct suite){.name = "sandbox_limits",
                                     .tests = tests,
                                     .of_v1 = of_v1,
                                     .of_files = of_files,
                                     .of_files_count = sizeof of_files / sizeof *of_files,
                                     .count = sizeof tests / sizeof *tests,
                                     .of_v1_count = sizeof of_v1 / sizeof *of_v1});
}
