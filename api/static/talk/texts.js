// What the pages say, in the languages that they say it in.

const ENGLISH = {
  title: "Talk to the agent",
  agent: "Agent",
  you: "You",
  colleague: "Colleague",
  start: "Start talking",
  hangUp: "Hang up",
  mute: "Mute",
  unmute: "Unmute",
  close: "Close",
  ready: "Ready",
  connecting: "Connecting…",
  initializing: "Connecting…",
  reconnecting: "The network changed. Reconnecting…",
  listening: "Listening",
  thinking: "Thinking…",
  speaking: "Speaking",
  muted: "You are muted",
  microphone: "Microphone",
  speaker: "Speaker",
  usual: "The browser's choice",
  sound: "Microphone and speaker",
  check: "Say something: the bar moves when you are heard.",
  pushToTalk: "Push to talk",
  hold: "Hold to talk",
  textOnly: "Text only, without microphone and voice",
  write: "Write to the agent",
  send: "Send",
  conversation: "Conversation",
  download: "Download",
  empty: "What you both say appears here.",
  latency: "answers after {ms} ms on average",
  token: "Participant token",
  useToken: "Use token",
  keyMute: "mute",
  keyHangUp: "hang up",
  NotFoundError: "No microphone was found. Connect one and try again.",
  NotAllowedError: "The microphone is blocked. Allow it for this page in the browser's address bar, then try again.",
  NotReadableError: "Another program is using the microphone. Close it and try again.",
  OverconstrainedError: "This microphone cannot be used. Choose another one.",
  Insecure: "Browsers give the microphone to secure pages only: open this page over https or on localhost.",
  noMicrophone: "The microphone cannot be used: {message}",
  unreachable: "The server cannot be reached. Check your network and try again.",
  wrong: "Something went wrong: {message}",
  expired: "The token has expired: it is good for 15 minutes. Ask for a new one.",
  needsToken: "This agent needs a token. Paste the participant token you were given.",
  notThere: "There is no such agent here, or it does not talk to visitors.",
  403: "This agent does not talk on this website.",
  404: "This conversation is over, or its link was never valid. Ask for a new one.",
  413: "The server refused the request: it is too large.",
  429: "Too many conversations.",
  503: "The server is full at the moment.",
  refused: "The server refused: {message}.",
  again: "Try again in {seconds} s.",
  client_initiated: "You hung up.",
  room_closed: "The agent hung up.",
  closed: "The call has ended.",
  duplicate_identity: "You continued this conversation in another window.",
  server_shutdown: "The server is restarting. Start again in a moment.",
  media_failure: "The connection was lost. Check your network and start again.",
  join_failure: "No audio connection came about. A firewall may be blocking UDP.",
};

const ARABIC = {
  title: "تحدّث إلى الوكيل",
  agent: "الوكيل",
  you: "أنت",
  colleague: "الزميل",
  start: "ابدأ التحدّث",
  hangUp: "إنهاء المكالمة",
  mute: "كتم الصوت",
  unmute: "إلغاء الكتم",
  close: "إغلاق",
  ready: "جاهز",
  connecting: "جارٍ الاتصال…",
  initializing: "جارٍ الاتصال…",
  reconnecting: "تغيّرت الشبكة. جارٍ إعادة الاتصال…",
  listening: "يستمع",
  thinking: "يفكّر…",
  speaking: "يتحدّث",
  muted: "صوتك مكتوم",
  microphone: "الميكروفون",
  speaker: "السمّاعة",
  usual: "اختيار المتصفّح",
  sound: "الميكروفون والسمّاعة",
  check: "قل شيئًا: يتحرّك الشريط حين يُسمَع صوتك.",
  pushToTalk: "اضغط للتحدّث",
  hold: "استمرّ بالضغط للتحدّث",
  textOnly: "كتابة فقط، دون ميكروفون ولا صوت",
  write: "اكتب إلى الوكيل",
  send: "إرسال",
  conversation: "المحادثة",
  download: "تنزيل",
  empty: "يظهر هنا ما يقوله كلاكما.",
  latency: "متوسّط زمن الردّ {ms} مللي ثانية",
  token: "رمز المشارك",
  useToken: "استخدم الرمز",
  keyMute: "كتم",
  keyHangUp: "إنهاء",
  NotFoundError: "لم يُعثر على ميكروفون. صِل واحدًا ثم حاول مجددًا.",
  NotAllowedError: "الميكروفون محظور. اسمح به لهذه الصفحة من شريط العنوان ثم حاول مجددًا.",
  NotReadableError: "برنامج آخر يستخدم الميكروفون. أغلقه ثم حاول مجددًا.",
  OverconstrainedError: "لا يمكن استخدام هذا الميكروفون. اختر غيره.",
  Insecure: "لا تتيح المتصفّحات الميكروفون إلا للصفحات الآمنة: افتح هذه الصفحة عبر https.",
  noMicrophone: "لا يمكن استخدام الميكروفون: {message}",
  unreachable: "لا يمكن الوصول إلى الخادم. تحقّق من شبكتك ثم حاول مجددًا.",
  wrong: "حدث خطأ: {message}",
  expired: "انتهت صلاحية الرمز: مدّته 15 دقيقة. اطلب رمزًا جديدًا.",
  needsToken: "يتطلّب هذا الوكيل رمزًا. ألصق رمز المشارك الذي حصلت عليه.",
  notThere: "لا يوجد هذا الوكيل هنا، أو أنه لا يتحدّث إلى الزوّار.",
  403: "لا يتحدّث هذا الوكيل على هذا الموقع.",
  404: "انتهت هذه المحادثة، أو لم يكن رابطها صالحًا. اطلب رابطًا جديدًا.",
  413: "رفض الخادم الطلب لأنه كبير جدًا.",
  429: "محادثات كثيرة جدًا.",
  503: "الخادم ممتلئ الآن.",
  refused: "رفض الخادم الطلب: {message}.",
  again: "حاول مجددًا بعد {seconds} ثانية.",
  client_initiated: "أنهيت المكالمة.",
  room_closed: "أنهى الوكيل المكالمة.",
  closed: "انتهت المكالمة.",
  duplicate_identity: "تابعت هذه المحادثة في نافذة أخرى.",
  server_shutdown: "يُعاد تشغيل الخادم. ابدأ من جديد بعد لحظات.",
  media_failure: "انقطع الاتصال. تحقّق من شبكتك ثم ابدأ من جديد.",
  join_failure: "لم ينشأ اتصال صوتي. قد يكون جدار حماية يحجب UDP.",
};

const LANGUAGES = { en: ENGLISH, ar: ARABIC };

export class Texts {
  #table;

  // `wanted`: languages in the order of preference; English where there is none of them.
  constructor(wanted) {
    const known = wanted.map((each) => each?.toLowerCase().split("-")[0]).find((each) => Object.hasOwn(LANGUAGES, each));
    this.language = known ?? "en";
    this.direction = this.language === "ar" ? "rtl" : "ltr";
    this.#table = LANGUAGES[this.language];
  }

  of(key, values = {}) {
    return this.#table[key].replace(/\{(\w+)\}/g, (_, name) => values[name]);
  }

  // What a conversation does, and that the person is not heard.
  doing(state, muted) {
    const known = Object.hasOwn(this.#table, state) ? this.of(state) : state;
    if (!muted) return known;
    return state === "listening" ? this.of("muted") : `${known} · ${this.of("muted")}`;
  }
}
