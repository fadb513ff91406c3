/* A sandbox on an image of the store, a hostile one: links and files where the sandbox mounts. As
   root and once more as a plain user. Its programs are one static busybox. */
#include "images_support.h"

#include "changes_support.h"

#include "hands/frames.h"
#include "sandbox/hands.h"
#include "sandbox/provider.h"

#include "base/json.h"

#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define BUSYBOX "/bin/busybox"
#define PLAIN_UID 12345
#define UID_BASE 2065536u

static char runtime[96], dir[128], sock[160];
static struct sandbox_spec spec;
static struct sandbox_place place;

typedef err (*verb_fn)(const struct sandbox_provider *p, struct sandbox_status *out);

static err create(const struct sandbox_provider *p, struct sandbox_status *out)
{
    (void)out;
    return p->create(&spec, &place);
}

static err start(const struct sandbox_provider *p, struct sandbox_status *out)
{
    (void)out;
    return p->start(&spec, &place);
}

static err stop(const struct sandbox_provider *p, struct sandbox_status *out)
{
    (void)out;
    return p->stop(&spec, &place, 0);
}

static err destroy(const struct sandbox_provider *p, struct sandbox_status *out)
{
    (void)out;
    return p->destroy(&spec, &place);
}

/* In a process of its own, as the parent's makers. */
static void must(verb_fn verb)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct sandbox_status status;
        if (verb(sandbox_provider_named("linux"), &status)) {
            fprintf(stderr, "%s\n", err_text());
            _exit(1);
        }
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void expect(const char *command, const char *output)
{
    AUTO_FD fd = -1;
    AUTO_BUF out = {0}, text = {0};
    AUTO_JSON o = json_pack("{s:[s,s,s],s:s}", "argv", "sh", "-c", command, "cwd", "/");
    json_write(o, &text);
    assert_int_equal(hands_connect(sock, &fd), 0);
    assert_int_equal(frame_write(fd, FRAME_EXEC, buf_str(&text)), 0);
    for (;;) {
        AUTO_BUF payload = {0};
        enum frame_type type;
        if (frame_read(fd, &type, &payload))
            fail_msg("%s: %s", command, err_text());
        if (type == FRAME_EXIT)
            break;
        buf_add(&out, payload.p, payload.n);
    }
    buf_add(&out, "", 1);
    assert_string_equal(out.p, output);
}

static void write_text(const char *path, const char *text, mode_t mode)
{
    assert_int_equal(fd_write_file_atomic(in_work(path), str_of(text), mode), 0);
}

static void copy_program(const char *from, const char *to, mode_t mode)
{
    AUTO_BUF bytes = {0};
    assert_int_equal(fd_read_file(from, 64 << 20, &bytes), 0);
    assert_int_equal(fd_write_file_atomic(in_work(to), buf_str(&bytes), mode), 0);
}

static void make_hostile_root(void)
{
    static const char *const applets[] = {"sh", "cat", "stat", "ls", "touch", "grep", "id", "head"};
    static const char *const traps[] = {"proc", "tmp", "workspace", ".pi", "mnt", "root", "sys"};
    mkdir(in_work("root"), 0755);
    mkdir(in_work("root/bin"), 0755);
    mkdir(in_work("root/etc"), 0755);
    copy_program(BUSYBOX, "root/bin/busybox", 04755);
    for (size_t i = 0; i < sizeof applets / sizeof *applets; i++) {
        char path[64];
        snprintf(path, sizeof path, "root/bin/%s", applets[i]);
        assert_int_equal(symlink("busybox", in_work(path)), 0);
    }
    for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
        char path[64];
        snprintf(path, sizeof path, "root/%s", traps[i]);
        if (strcmp(traps[i], "root") != 0)
            assert_int_equal(symlink("/etc", in_work(path)), 0);
    }
    write_text("root/dev", "a file where a folder should be", 0644);
    write_text("root/etc/release", "from the image\n", 0640);
    if (geteuid() == 0)
        assert_int_equal(chown(in_work("root/etc/release"), 7, 8), 0);
}

static void make_place(void)
{
    char path[PATH_MAX];
    snprintf(runtime, sizeof runtime, "%s/runtime", work);
    snprintf(dir, sizeof dir, "%s/sandboxes", work);
    assert_int_equal(mkdir(runtime, 0755), 0);
    assert_int_equal(mkdir(dir, 0755), 0);
    if (access("build/runtime/rg", R_OK) < 0)
        fail_msg("build/runtime/rg is missing: run make setup");
    snprintf(path, sizeof path, "%s/rg", runtime);
    copy_program("build/runtime/rg", "runtime/rg", 0755);
    spec = (struct sandbox_spec){.image = "it"};
    snprintf(spec.id, sizeof spec.id, "sess_image_%d", (int)getpid());
    snprintf(dir, sizeof dir, "%s/sandboxes/%s", work, spec.id);
    snprintf(sock, sizeof sock, "%s/agent.sock", dir);
    place = (struct sandbox_place){.dir = dir,
                                   .socket = sock,
                                   .socket_owner = geteuid(),
                                   .uid_base = UID_BASE,
                                   .runtime = runtime,
                                   .images = images};
}

static void check_inside(void)
{
    expect("cat /etc/release; id -u", "from the image\n0\n");
    expect("stat -c '%u:%g %a' /etc/release",
           geteuid() == 0 ? "7:8 640\n" : "0:0 640\n"); /* owners are the sandbox's own ids */
    expect("stat -c %a /bin/busybox", "4755\n");
    expect(
        "grep -c '^root / overlay [^ ]*nosuid[^ ]*nodev\\|^root / overlay [^ ]*nodev[^ ]*nosuid' "
        "/proc/mounts",
        "1\n");
    expect("ls -d /usr 2>&1 | head -n 1", "ls: /usr: No such file or directory\n"); /* not ours */
    /* The traps are hidden, and nothing was mounted behind them. */
    expect("stat -c %F /proc /tmp /workspace /.pi /mnt/session/outputs /sys /dev",
           "directory\ndirectory\ndirectory\ndirectory\ndirectory\ndirectory\ndirectory\n");
    expect("ls /etc; cat /proc/1/comm >/dev/null && touch /tmp/x /workspace/x && echo ok",
           "release\nok\n");
    expect("/.pi/rg --version | head -c 7; touch /.pi/x 2>/dev/null || echo -n ' read-only'",
           "ripgrep read-only");
    expect("echo changed >/etc/release; touch /new; cat /etc/release", "changed\n");
}

/* Among them the traps: they are hidden, and are not what the agent did. */
static void check_changes(void)
{
    AUTO_BUF changes = {0};
    changes_of(sock, &changes);
    assert_string_equal(changes.p, "Mf 640 etc/release\nAf 644 new\nAf 644 workspace/x\n");
}

static void check_all(void)
{
    char source[PATH_MAX + 8];
    struct image image;
    uint64_t holders = 0;
    make_hostile_root();
    make_place();
    snprintf(source, sizeof source, "dir:%s", in_work("root"));
    must_import(source);
    must(create);
    must(start);
    check_inside();
    must(stop);
    assert_int_equal(image_held(images, "it", spec.id, &image), 0);
    assert_text("etc/release", "from the image\n");
    assert_false(has("new"));
    assert_int_equal(image_remove(images, "it", &holders), 0);
    assert_int_equal(holders, 1);
    must(start);
    expect("cat /etc/release; ls -d /new", "changed\n/new\n");
    check_changes();
    must(destroy);
    assert_int_equal(access(image.rootfs, F_OK), -1);
}

static void a_sandbox_lives_on_an_image(void **state)
{
    (void)state;
    if (access(BUSYBOX, X_OK) < 0)
        skip();
    check_all();
}

static void a_plain_users_sandbox_lives_on_an_image(void **state)
{
    (void)state;
    struct sandbox_caps *caps =
        mmap(NULL, sizeof *caps, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (access(BUSYBOX, X_OK) < 0 || geteuid() != 0)
        skip(); /* a plain user has had the test above */
    pid_t pid = fork();
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setgid(PLAIN_UID) < 0 || setuid(PLAIN_UID) < 0)
            _exit(9);
        prctl(PR_SET_DUMPABLE, 1);
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        sandbox_provider_named("linux")->probe(caps);
        if (caps->usable)
            check_all();
        _exit(0);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    if (!caps->usable) {
        print_message("not tested: %s\n", caps->reason);
        skip();
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_work, drop_work)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_sandbox_lives_on_an_image),
        TEST(a_plain_users_sandbox_lives_on_an_image),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
